package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

// credentialReconciler deletes sessions and API tokens that have expired, and API tokens of ServiceAccounts that are gone: one can be
// made at the moment at which its ServiceAccount goes. Of their Secrets it sees the metadata only.
type credentialReconciler struct {
	client client.Client
	live   client.Reader
	now    func() time.Time
}

func (r *credentialReconciler) setup(mgr ctrl.Manager) error {
	expires := predicate.NewPredicateFuncs(func(o client.Object) bool {
		labels := o.GetLabels()
		return o.GetNamespace() == authv1.SystemNamespace && labels[authv1.LabelCredential] != "" &&
			(labels[authv1.LabelUser] != "" || labels[authv1.LabelServiceAccountUID] != "")
	})
	return ctrl.NewControllerManagedBy(mgr).Named("credential").
		For(&corev1.Secret{}, builder.OnlyMetadata, builder.WithPredicates(expires)).
		Watches(&authv1.ServiceAccount{}, r.tokensOfGone()).
		Complete(r)
}

// tokensOfGone asks for the tokens of a ServiceAccount that is gone, or in whose place there is another of its name.
func (r *credentialReconciler) tokensOfGone() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				r.ask(ctx, e.ObjectOld, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.ask(ctx, e.Object, q) },
	}
}

func (r *credentialReconciler) ask(ctx context.Context, account client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := r.client.List(ctx, list, client.InNamespace(authv1.SystemNamespace), client.MatchingLabels{authv1.LabelServiceAccountUID: string(account.GetUID())})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list the tokens of a ServiceAccount that is gone", "serviceaccount", client.ObjectKeyFromObject(account))
		return
	}
	for i := range list.Items {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
}

// orphaned tells whether a credential is of a ServiceAccount that is gone or goes. The cache may not have one that is new yet.
func (r *credentialReconciler) orphaned(ctx context.Context, kept metav1.Object) (bool, error) {
	key, uid, ok := session.AccountOf(kept)
	if !ok {
		return false, nil
	}
	if key.Name == "" {
		return true, nil // of nobody
	}
	for _, reader := range []client.Reader{r.client, r.live} {
		account := &authv1.ServiceAccount{}
		err := reader.Get(ctx, key, account)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read ServiceAccount %s of credential %s: %w", key, kept.GetName(), err)
		}
		if err == nil && account.UID == uid && account.DeletionTimestamp.IsZero() {
			return false, nil
		}
	}
	return true, nil
}

// Reconcile deletes a credential that has expired or whose ServiceAccount is gone, and comes back when one will expire.
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
		orphaned, err := r.orphaned(ctx, kept)
		if err != nil || !orphaned {
			return reconcile.Result{RequeueAfter: at.Sub(now)}, err
		}
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
