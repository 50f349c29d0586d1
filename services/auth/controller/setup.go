package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/password"
	"github.com/mnicloud/mnicloud/services/auth/session"
)

type quantity = resource.Quantity

// Config is what the owner of the cloud decides about Users and Tenants.
type Config struct {
	// Webhooks serves the webhook that hashes passwords; nil when another process does.
	Webhooks webhook.Server
	// PasswordCost is the bcrypt cost of new hashes. 0 means password.DefaultCost.
	PasswordCost int
	// Workers is how many objects of each kind are reconciled at once. 0 means 4.
	Workers int
	// now is the world's clock; nil means time.Now.
	now func() time.Time
}

// tenantByMember is the index of the cache by which a User's Tenants are found.
const tenantByMember = "spec.members.user"

// CacheByObject narrows the manager's cache: of Secrets it has the credentials in the system's namespace, and of what is made for
// Tenants and Users only that.
func CacheByObject() map[client.Object]cache.ByObject {
	tenants := cache.ByObject{Label: exists(authv1.LabelTenantUID)}
	rights := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{labelPartOf: partOf})} // of Tenants and of Users
	return map[client.Object]cache.ByObject{
		&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{authv1.SystemNamespace: {LabelSelector: exists(authv1.LabelCredential)}},
		},
		&corev1.ResourceQuota{}: tenants, &corev1.LimitRange{}: tenants,
		&rbacv1.RoleBinding{}: tenants, &rbacv1.ClusterRole{}: rights, &rbacv1.ClusterRoleBinding{}: rights,
	}
}

func exists(label string) labels.Selector {
	requirement, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		panic(err) // a mistake in this package
	}
	return labels.NewSelector().Add(*requirement)
}

// SetupWithManager adds the reconcilers of User, Tenant and ServiceAccount, the collector of expired credentials, the turning of signing
// keys, and the webhook that hashes passwords to the manager, whose scheme must know auth.mnicloud.jp/v1alpha1.
func SetupWithManager(ctx context.Context, mgr ctrl.Manager, config Config) error {
	return setup(ctx, mgr, config, mgr.GetClient())
}

// setup adds them with the client that they write with.
func setup(ctx context.Context, mgr ctrl.Manager, config Config, c client.Client) error {
	if config.Workers <= 0 {
		config.Workers = 4
	}
	if config.PasswordCost == 0 {
		config.PasswordCost = password.DefaultCost
	}
	if config.PasswordCost < password.MinCost || config.PasswordCost > password.MaxCost {
		return fmt.Errorf("the cost of a password's hash is from %d to %d, not %d", password.MinCost, password.MaxCost, config.PasswordCost)
	}
	if config.now == nil {
		config.now = time.Now
	}
	err := mgr.GetFieldIndexer().IndexField(ctx, &authv1.Tenant{}, tenantByMember, func(o client.Object) []string {
		var out []string
		if tenant, ok := o.(*authv1.Tenant); ok {
			for _, m := range tenant.Spec.Members {
				out = append(out, m.User)
			}
		}
		return out
	})
	if err != nil {
		return err
	}
	live, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return err
	}
	if config.Webhooks != nil {
		config.Webhooks.Register(password.Path, &admission.Webhook{Handler: password.NewWebhook(config.PasswordCost)})
	}
	return errors.Join(
		(&tenantReconciler{client: c, live: mgr.GetAPIReader(), now: config.now}).setup(mgr, config.Workers),
		(&userReconciler{client: c}).setup(mgr, config.Workers),
		(&accountReconciler{client: c}).setup(mgr, config.Workers),
		(&credentialReconciler{client: c, live: mgr.GetAPIReader(), now: config.now}).setup(mgr),
		mgr.Add(keyTurner{service: session.New(live, live, session.Options{Now: config.now}), now: config.now}),
	)
}

func options(workers int) controller.Options {
	return controller.Options{MaxConcurrentReconciles: workers}
}

// settle ends a reconcile. A conflict is no failure: the newer version of the object is on its way and brings it back.
func settle(again time.Duration, err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}

func wrap(err error, doing string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
