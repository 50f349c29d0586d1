package controller

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

// userReconciler says of each User which Tenants it is in, lets it look at itself, and ends the credentials of one that goes.
type userReconciler struct {
	client client.Client
}

func (r *userReconciler) setup(mgr ctrl.Manager, workers int) error {
	byLabel := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		if name := o.GetLabels()[authv1.LabelUser]; name != "" {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
		}
		return nil
	})
	return ctrl.NewControllerManagedBy(mgr).Named("user").
		For(&authv1.User{}).
		Watches(&authv1.Tenant{}, membersOf(), builder.WithPredicates(otherMembers)).
		Watches(&rbacv1.ClusterRole{}, byLabel).
		Watches(&rbacv1.ClusterRoleBinding{}, byLabel).
		WithOptions(options(workers)).
		Complete(r)
}

// otherMembers tells whether a Tenant's members are others than before, or in other roles: nothing else of a Tenant matters to its Users.
var otherMembers = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, was := e.ObjectOld.(*authv1.Tenant)
	after, is := e.ObjectNew.(*authv1.Tenant)
	return was && is && (!slices.Equal(before.Spec.Members, after.Spec.Members) || !slices.Equal(before.Status.Members, after.Status.Members))
}}

// membersOf asks for the Users that a Tenant names, and for those that it named.
func membersOf() handler.EventHandler {
	add := func(q workqueue.TypedRateLimitingInterface[reconcile.Request], objects ...client.Object) {
		for _, o := range objects {
			if tenant, ok := o.(*authv1.Tenant); ok {
				for _, m := range tenant.Spec.Members {
					q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: m.User}})
				}
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(q, e.ObjectOld, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			add(q, e.Object)
		},
	}
}

// Reconcile brings one User's status to the present.
func (r *userReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	user := &authv1.User{}
	err := r.client.Get(ctx, req.NamespacedName, user)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read User %s: %w", req.Name, err)
	}
	if user.DeletionTimestamp.IsZero() {
		err = r.ensure(ctx, user)
	} else {
		err = r.delete(ctx, user)
	}
	return settle(0, err)
}

func (r *userReconciler) ensure(ctx context.Context, user *authv1.User) error {
	if err := finalizer.Ensure(ctx, r.client, user, authv1.Finalizer); err != nil {
		return fmt.Errorf("add the finalizer to User %s: %w", user.Name, err)
	}
	var list authv1.TenantList
	if err := r.client.List(ctx, &list, client.MatchingFields{tenantByMember: user.Name}); err != nil {
		return fmt.Errorf("list the Tenants of User %s: %w", user.Name, err)
	}
	for _, desired := range renderSelf(user) {
		if _, err := ensureMade(ctx, r.client, desired); err != nil {
			return fmt.Errorf("of User %s: %w", user.Name, err)
		}
	}
	before := user.DeepCopy()
	user.Status.Tenants = tenantsOf(user, list.Items)
	message := ""
	switch {
	case user.Spec.Disabled:
		message = "spec.disabled: the User cannot log in"
	case user.Spec.Password == "":
		message = "spec.password: the User has none, and cannot log in by password"
	}
	return r.tell(ctx, before, user, conditions.Ready("Ready", message))
}

// delete ends the User's sessions, API tokens and rights.
func (r *userReconciler) delete(ctx context.Context, user *authv1.User) error {
	if !slices.Contains(user.Finalizers, authv1.Finalizer) {
		if len(user.Finalizers) == 0 {
			return nil
		}
		return r.tell(ctx, user.DeepCopy(), user, conditions.Held(user.Finalizers))
	}
	if err := session.Revoke(ctx, r.client, user.Name, true); err != nil {
		return err
	}
	for _, made := range renderSelf(user) {
		if err := client.IgnoreNotFound(r.client.Delete(ctx, made)); err != nil {
			return fmt.Errorf("delete %T %s of User %s: %w", made, made.GetName(), user.Name, err)
		}
	}
	return finalizer.Remove(ctx, r.client, user, authv1.Finalizer)
}

func (r *userReconciler) tell(ctx context.Context, before, user *authv1.User, result conditions.Result) error {
	s := &user.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(user, result)
	return apply.Status(ctx, r.client, before, user)
}
