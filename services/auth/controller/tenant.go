package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
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
)

// tenantReconciler gives each Tenant its namespace, and takes it away.
type tenantReconciler struct {
	client client.Client
	live   client.Reader
	now    func() time.Time
}

func (r *tenantReconciler) setup(mgr ctrl.Manager, workers int) error {
	byLabel := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
		name := o.GetLabels()[authv1.LabelTenant]
		if name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	})
	b := ctrl.NewControllerManagedBy(mgr).Named("tenant").
		For(&authv1.Tenant{}).
		Watches(&authv1.User{}, handler.EnqueueRequestsFromMapFunc(r.requestTenantsOf), builder.WithPredicates(otherPerson)).
		WithOptions(options(workers))
	for _, made := range []client.Object{
		&corev1.Namespace{}, &corev1.ResourceQuota{}, &corev1.LimitRange{}, &rbacv1.RoleBinding{}, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleBinding{},
	} {
		b = b.Watches(made, byLabel)
	}
	return b.Complete(r)
}

// otherPerson tells whether there is another User of a name than before, or none any more: nothing else of a User matters to its Tenants.
var otherPerson = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, after := e.ObjectOld, e.ObjectNew
	return before.GetUID() != after.GetUID() || before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero()
}}

func (r *tenantReconciler) requestTenantsOf(ctx context.Context, user client.Object) []reconcile.Request {
	var list authv1.TenantList
	if err := r.client.List(ctx, &list, client.MatchingFields{tenantByMember: user.GetName()}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the Tenants of a User", "user", user.GetName())
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile brings one Tenant towards its spec.
func (r *tenantReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	tenant := &authv1.Tenant{}
	err := r.client.Get(ctx, req.NamespacedName, tenant)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Tenant %s: %w", req.Name, err)
	}
	var again time.Duration
	if tenant.DeletionTimestamp.IsZero() {
		err = r.ensure(ctx, tenant)
	} else {
		again, err = r.delete(ctx, tenant)
	}
	return settle(again, err)
}

func (r *tenantReconciler) ensure(ctx context.Context, tenant *authv1.Tenant) error {
	if err := finalizer.Ensure(ctx, r.client, tenant, authv1.Finalizer); err != nil {
		return fmt.Errorf("add the finalizer to Tenant %s: %w", tenant.Name, err)
	}
	before := tenant.DeepCopy()
	if err := r.fillMembers(ctx, tenant); err != nil {
		return err
	}
	// The namespace is written down before it is made, so that whatever ends this process deletion finds it. It has the name of the
	// Tenant's UID, a UUID that no other object of the cluster has.
	if tenant.Status.Namespace == "" {
		tenant.Status.Namespace = string(tenant.UID)
		if err := r.tell(ctx, before, tenant, conditions.Progressing("Making", "the namespace is being made")); err != nil {
			return err
		}
		before = tenant.DeepCopy()
	}
	wait, err := r.ensureNamespace(ctx, tenant)
	if err != nil {
		return err
	}
	if wait != nil {
		return r.tell(ctx, before, tenant, *wait)
	}
	for _, desired := range slices.Concat(renderInside(tenant), renderRights(tenant)) {
		live, err := ensureMade(ctx, r.client, desired)
		if err != nil {
			return fmt.Errorf("of Tenant %s: %w", tenant.Name, err)
		}
		if quota, ok := live.(*corev1.ResourceQuota); ok {
			tenant.Status.Used = quota.Status.Used
		}
	}
	return r.tell(ctx, before, tenant, ready(tenant))
}

// fillMembers writes into the status how the members are.
func (r *tenantReconciler) fillMembers(ctx context.Context, tenant *authv1.Tenant) error {
	users := map[string]*authv1.User{}
	for _, m := range tenant.Spec.Members {
		user := &authv1.User{}
		err := r.client.Get(ctx, client.ObjectKey{Name: m.User}, user)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read User %s: %w", m.User, err)
		}
		if err == nil {
			users[m.User] = user
		}
	}
	tenant.Status.Members = members(tenant, users)
	return nil
}

// ensureNamespace makes the namespace, or says what there is to wait for. One that is there already is the Tenant's only when it says
// so by its labels, which it has had since it was created.
func (r *tenantReconciler) ensureNamespace(ctx context.Context, tenant *authv1.Tenant) (wait *conditions.Result, err error) {
	desired := renderNamespace(tenant)
	live := &corev1.Namespace{}
	err = r.client.Get(ctx, client.ObjectKeyFromObject(desired), live)
	if apierrors.IsNotFound(err) {
		err = r.client.Create(ctx, desired.DeepCopy(), client.FieldOwner(authv1.FieldOwner))
		if !apierrors.IsAlreadyExists(err) {
			return nil, wrap(err, "make the namespace of Tenant "+tenant.Name)
		}
		err = r.live.Get(ctx, client.ObjectKeyFromObject(desired), live)
	}
	if err != nil {
		return nil, fmt.Errorf("read the namespace of Tenant %s: %w", tenant.Name, err)
	}
	var result conditions.Result
	switch {
	case live.Labels[authv1.LabelTenantUID] != string(tenant.UID):
		result = conditions.Failed("NamespaceTaken", "namespace "+live.Name+" is there and is not this Tenant's: the cloud's administrator has to delete one of the two")
	case live.DeletionTimestamp != nil:
		result = conditions.Waiting("NamespaceGoes", "somebody deleted the Tenant's namespace and what was in it; it is made anew when it is gone")
	default:
		return nil, wrap(apply.Object(ctx, r.client, authv1.FieldOwner, live, desired), "label the namespace of Tenant "+tenant.Name)
	}
	return &result, nil
}

// ensureMade makes an object as it should be, and returns it as the cache has it.
func ensureMade(ctx context.Context, c client.Client, desired client.Object) (client.Object, error) {
	live, ok := desired.DeepCopyObject().(client.Object)
	if !ok {
		return nil, fmt.Errorf("%T is no object", desired)
	}
	err := c.Get(ctx, client.ObjectKeyFromObject(desired), live)
	switch {
	case apierrors.IsNotFound(err):
		live.SetResourceVersion("")
	case err != nil:
		return nil, fmt.Errorf("read %T %s: %w", desired, desired.GetName(), err)
	}
	if err := apply.Object(ctx, c, authv1.FieldOwner, live, desired); err != nil {
		return nil, fmt.Errorf("make %T %s: %w", desired, desired.GetName(), err)
	}
	return live, nil
}

// delete lets the Tenant go once its namespace is gone, and then its members' rights. The namespace refuses new objects as soon as it
// is asked to go; each service keeps the order among its own. It works from what is written down, and deletes what carries the
// Tenant's UID only.
func (r *tenantReconciler) delete(ctx context.Context, tenant *authv1.Tenant) (time.Duration, error) {
	before := tenant.DeepCopy()
	if !slices.Contains(tenant.Finalizers, authv1.Finalizer) {
		if len(tenant.Finalizers) == 0 {
			return 0, nil
		}
		return 0, r.tell(ctx, before, tenant, conditions.Held(tenant.Finalizers))
	}
	ns, err := r.ownNamespace(ctx, tenant)
	if err != nil {
		return 0, err
	}
	if ns != nil {
		if ns.DeletionTimestamp.IsZero() {
			uid := ns.UID
			err := r.client.Delete(ctx, ns, client.Preconditions{UID: &uid})
			if client.IgnoreNotFound(err) != nil {
				return 0, fmt.Errorf("delete the namespace of Tenant %s: %w", tenant.Name, err)
			}
		}
		result, again := going(ns, r.now())
		return again, r.tell(ctx, before, tenant, result)
	}
	for _, list := range []client.ObjectList{&rbacv1.ClusterRoleBindingList{}, &rbacv1.ClusterRoleList{}} {
		if err := r.deleteAll(ctx, tenant, list); err != nil {
			return 0, err
		}
	}
	return 0, finalizer.Remove(ctx, r.client, tenant, authv1.Finalizer)
}

// ownNamespace is the Tenant's namespace as the API server knows it now; nil when there is none.
func (r *tenantReconciler) ownNamespace(ctx context.Context, tenant *authv1.Tenant) (*corev1.Namespace, error) {
	if tenant.Status.Namespace == "" {
		return nil, nil
	}
	ns := &corev1.Namespace{}
	err := r.live.Get(ctx, client.ObjectKey{Name: tenant.Status.Namespace}, ns)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the namespace of Tenant %s: %w", tenant.Name, err)
	}
	if ns.Labels[authv1.LabelTenantUID] != string(tenant.UID) {
		return nil, nil
	}
	return ns, nil
}

func (r *tenantReconciler) deleteAll(ctx context.Context, tenant *authv1.Tenant, list client.ObjectList) error {
	if err := r.live.List(ctx, list, client.MatchingLabels{authv1.LabelTenantUID: string(tenant.UID)}); err != nil {
		return fmt.Errorf("list the rights of Tenant %s: %w", tenant.Name, err)
	}
	var objects []client.Object
	switch list := list.(type) {
	case *rbacv1.ClusterRoleBindingList:
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	case *rbacv1.ClusterRoleList:
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
	for _, o := range objects {
		if err := client.IgnoreNotFound(r.client.Delete(ctx, o)); err != nil {
			return fmt.Errorf("delete %T %s of Tenant %s: %w", o, o.GetName(), tenant.Name, err)
		}
	}
	return nil
}

func (r *tenantReconciler) tell(ctx context.Context, before, tenant *authv1.Tenant, result conditions.Result) error {
	s := &tenant.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(tenant, result)
	if maps.EqualFunc(before.Status.Used, s.Used, func(a, b quantity) bool { return a.Cmp(b) == 0 }) {
		s.Used = before.Status.Used
	}
	return apply.Status(ctx, r.client, before, tenant)
}
