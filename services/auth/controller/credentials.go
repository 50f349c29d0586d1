package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

// credentialReconciler deletes sessions and API tokens that have expired. Of their Secrets it sees the metadata only.
type credentialReconciler struct {
	client client.Client
	now    func() time.Time
}

func (r *credentialReconciler) setup(mgr ctrl.Manager) error {
	expires := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == authv1.SystemNamespace && o.GetLabels()[authv1.LabelCredential] != "" && o.GetLabels()[authv1.LabelUser] != ""
	})
	return ctrl.NewControllerManagedBy(mgr).Named("credential").
		For(&corev1.Secret{}, builder.OnlyMetadata, builder.WithPredicates(expires)).
		Complete(r)
}

// Reconcile deletes a credential that has expired, and comes back when one will.
func (r *credentialReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	kept := &metav1.PartialObjectMetadata{}
	kept.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.client.Get(ctx, req.NamespacedName, kept)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read credential %s: %w", req.Name, err)
	}
	now := r.now()
	if expired, at := session.Expired(kept, now); !expired {
		return reconcile.Result{RequeueAfter: at.Sub(now)}, nil
	}
	uid := kept.UID
	err = r.client.Delete(ctx, kept, client.Preconditions{UID: &uid})
	return settle(0, client.IgnoreNotFound(err))
}

// keyTurner turns the signing keys when it is time.
type keyTurner struct {
	service *session.Service
	now     func() time.Time
}

// Start turns the keys until the context ends.
func (k keyTurner) Start(ctx context.Context) error {
	const retry = time.Second
	for {
		next, err := k.service.EnsureKeys(ctx)
		wait := next.Sub(k.now())
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "turn the signing keys")
		}
		timer := time.NewTimer(max(wait, retry))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
}
