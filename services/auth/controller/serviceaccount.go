package controller

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/kit/finalizer"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

// accountReconciler says of each ServiceAccount how it is, and ends the tokens of one that goes. What it may do is decided without it.
type accountReconciler struct {
	client client.Client
}

func (r *accountReconciler) setup(mgr ctrl.Manager, workers int) error {
	return ctrl.NewControllerManagedBy(mgr).Named("serviceaccount").
		For(&authv1.ServiceAccount{}).
		WithOptions(options(workers)).
		Complete(r)
}

// Reconcile brings one ServiceAccount's status to the present.
func (r *accountReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	account := &authv1.ServiceAccount{}
	err := r.client.Get(ctx, req.NamespacedName, account)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read ServiceAccount %s: %w", req, err)
	}
	if account.DeletionTimestamp.IsZero() {
		err = r.ensure(ctx, account)
	} else {
		err = r.delete(ctx, account)
	}
	return settle(0, err)
}

// ensure puts the finalizer on before there can be tokens: none are made without it.
func (r *accountReconciler) ensure(ctx context.Context, account *authv1.ServiceAccount) error {
	if wait := dependency.Waits(account, authv1.Finalizer); wait != nil {
		return r.tell(ctx, account.DeepCopy(), account, *wait)
	}
	if err := finalizer.Ensure(ctx, r.client, account, authv1.Finalizer); err != nil {
		return fmt.Errorf("add the finalizer to ServiceAccount %s: %w", client.ObjectKeyFromObject(account), err)
	}
	message := ""
	if account.Spec.Disabled {
		message = "spec.disabled: the tokens of the ServiceAccount are good for nothing"
	}
	return r.tell(ctx, account.DeepCopy(), account, conditions.Ready("Ready", message))
}

// delete ends the tokens of the ServiceAccount, at once: that they are refused since it was asked to go is not for it to see to.
func (r *accountReconciler) delete(ctx context.Context, account *authv1.ServiceAccount) error {
	if !slices.Contains(account.Finalizers, authv1.Finalizer) {
		if len(account.Finalizers) == 0 {
			return nil
		}
		return r.tell(ctx, account.DeepCopy(), account, conditions.Held(account.Finalizers))
	}
	if err := session.RevokeAccount(ctx, r.client, account.UID); err != nil {
		return err
	}
	if held := dependency.Held("ServiceAccount", account); held != nil {
		return r.tell(ctx, account.DeepCopy(), account, *held)
	}
	return finalizer.Remove(ctx, r.client, account, authv1.Finalizer)
}

func (r *accountReconciler) tell(ctx context.Context, before, account *authv1.ServiceAccount, result conditions.Result) error {
	s := &account.Status
	conditions.Status{Phase: &s.Phase, ObservedGeneration: &s.ObservedGeneration, Conditions: &s.Conditions}.Apply(account, result)
	return apply.Status(ctx, r.client, before, account)
}
