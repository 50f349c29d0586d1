package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// ErrForbidden is in the error for what somebody may not do with a Tenant's service accounts. What it is is said after it.
var ErrForbidden = errors.New("not allowed")

// Account names a ServiceAccount as people do.
type Account struct {
	// Tenant is the name of its Tenant.
	Tenant string
	// Name is its own; empty for all of the Tenant's where several can be meant.
	Name string
}

// CreateAccountToken makes an API token of a ServiceAccount, which an admin or owner of its Tenant asks for, or an administrator of the
// cloud. It does not hang on who that is. Its text is returned this once and can never be read again.
func (s *Service) CreateAccountToken(ctx context.Context, by, name string, life time.Duration, of Account) (text string, token Token, err error) {
	if err := checkToken(name, life); err != nil {
		return "", token, err
	}
	tenant, err := s.managed(ctx, by, of.Tenant)
	if err != nil {
		return "", token, err
	}
	account := &authv1.ServiceAccount{}
	if isName(of.Name) { // no path
		err = s.live.Get(ctx, client.ObjectKey{Namespace: tenant.Status.Namespace, Name: of.Name}, account)
		if client.IgnoreNotFound(err) != nil {
			return "", token, fmt.Errorf("read ServiceAccount %s of Tenant %s: %w", of.Name, tenant.Name, err)
		}
	}
	if why := unfit(account); why != "" {
		return "", token, fmt.Errorf("%w: serviceAccount: %q of tenant %s %s", ErrRefused, of.Name, tenant.Name, why)
	}
	present, err := s.tokensIn(ctx, tenant, client.MatchingLabels{authv1.LabelServiceAccountUID: string(account.UID)})
	if err != nil {
		return "", token, err
	}
	if len(present) >= maxTokens {
		return "", token, fmt.Errorf("%w: service account %s has %d tokens; revoke those that are not used", ErrRefused, account.Name, len(present))
	}
	expires := s.options.Now().Add(life).Truncate(time.Second).UTC()
	made := newSecret(tokenPrefix)
	kept := accountCredential(made, account, tenant, expires)
	kept.Annotations[annotationName], kept.Annotations[annotationCreatedBy] = name, by
	if err := s.live.Create(ctx, kept); err != nil {
		return "", token, fmt.Errorf("keep the token: %w", err)
	}
	return made.text, tokenOf(kept, made.id, expires), nil
}

// unfit says why no token is made of a ServiceAccount; empty when one is.
func unfit(account *authv1.ServiceAccount) string {
	switch {
	case account.UID == "":
		return "is none; an admin or owner makes it first"
	case account.DeletionTimestamp != nil:
		return "is being deleted"
	case account.Spec.Disabled:
		return "is disabled; enable it first"
	case !slices.Contains(account.Finalizers, authv1.Finalizer):
		// Its controller has not seen it yet, and would not see to the end of its tokens.
		return strings.TrimSuffix("is not ready yet; try again in a moment: "+conditions.Message(account.Status.Conditions), ": ")
	}
	return ""
}

// isName tells whether a text can be the name of a Tenant, a User or a ServiceAccount.
func isName(text string) bool { return len(validation.NameIsDNSLabel(text, false)) == 0 }

// accountCredential is the Secret that keeps an API token of the ServiceAccount.
func accountCredential(made secret, account *authv1.ServiceAccount, tenant *authv1.Tenant, expires time.Time) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: authv1.SystemNamespace, Name: kindToken + "-" + made.id,
		Labels: map[string]string{
			authv1.LabelCredential: kindToken, authv1.LabelTenantUID: string(tenant.UID), authv1.LabelServiceAccountUID: string(account.UID),
		},
		Annotations: map[string]string{
			AnnotationExpires: expires.UTC().Format(time.RFC3339), annotationHash: made.hash,
			annotationAccount: account.Namespace + "/" + account.Name, annotationTenant: tenant.Name, annotationTenantUID: string(tenant.UID),
		},
	}}
}

// AccountOf is the ServiceAccount that a kept credential is of, with that one's UID; not ok when it is no ServiceAccount's.
func AccountOf(kept metav1.Object) (key client.ObjectKey, uid types.UID, ok bool) {
	label, is := kept.GetLabels()[authv1.LabelServiceAccountUID]
	namespace, name, _ := strings.Cut(kept.GetAnnotations()[annotationAccount], "/")
	return client.ObjectKey{Namespace: namespace, Name: name}, types.UID(label), is
}

// RevokeAccount ends all API tokens of the ServiceAccount with the UID.
func RevokeAccount(ctx context.Context, c client.Client, uid types.UID) error {
	err := c.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(authv1.SystemNamespace),
		client.MatchingLabels{authv1.LabelCredential: kindToken, authv1.LabelServiceAccountUID: string(uid)})
	if err != nil {
		return fmt.Errorf("revoke the tokens of ServiceAccount %s: %w", uid, err)
	}
	return nil
}

// AccountTokens lists the API tokens of a ServiceAccount, or of all of a Tenant, by name, for an admin or owner of the Tenant or an
// administrator of the cloud.
func (s *Service) AccountTokens(ctx context.Context, by string, of Account) ([]Token, error) {
	tenant, err := s.managed(ctx, by, of.Tenant)
	if err != nil {
		return nil, err
	}
	tokens, err := s.tokensIn(ctx, tenant, nil)
	if of.Name != "" {
		tokens = slices.DeleteFunc(tokens, func(t Token) bool { return t.ServiceAccount != of.Name })
	}
	return tokens, err
}

// tokensIn are those of ServiceAccounts of this very Tenant that have not expired.
func (s *Service) tokensIn(ctx context.Context, tenant *authv1.Tenant, more client.MatchingLabels) ([]Token, error) {
	labels := client.MatchingLabels{authv1.LabelCredential: kindToken, authv1.LabelTenantUID: string(tenant.UID)}
	for label, value := range more {
		labels[label] = value
	}
	tokens, err := s.listTokens(ctx, labels, func(o metav1.Object) bool {
		expired, _ := Expired(o, s.options.Now())
		_, _, ok := AccountOf(o)
		return ok && !expired && o.GetDeletionTimestamp() == nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the tokens of the service accounts of Tenant %s: %w", tenant.Name, err)
	}
	return tokens, nil
}

// RevokeAccountToken ends an API token of a ServiceAccount, or of any of a Tenant, for an admin or owner of the Tenant or an administrator
// of the cloud. One that is another's, or not there, gives ErrToken.
func (s *Service) RevokeAccountToken(ctx context.Context, by, id string, of Account) error {
	tenant, err := s.managed(ctx, by, of.Tenant)
	if err != nil {
		return err
	}
	return s.revoke(ctx, id, func(kept metav1.Object) bool {
		key, _, ok := AccountOf(kept)
		return ok && kept.GetLabels()[authv1.LabelTenantUID] == string(tenant.UID) && (of.Name == "" || key.Name == of.Name)
	})
}

// managed is the Tenant of that name, whose service accounts' tokens the User makes and ends: as its admin or owner, or as an
// administrator of the cloud.
func (s *Service) managed(ctx context.Context, by, name string) (*authv1.Tenant, error) {
	user := &authv1.User{}
	if err := s.live.Get(ctx, client.ObjectKey{Name: by}, user); err != nil {
		return nil, fmt.Errorf("read User %s: %w", by, err)
	}
	if user.Spec.Disabled || user.DeletionTimestamp != nil || user.Spec.MustChangePassword {
		return nil, fmt.Errorf("%w: User %s is disabled, being deleted, or must change the password first", ErrForbidden, by)
	}
	tenant, err := s.tenantFor(ctx, user, name)
	if err != nil {
		return nil, err
	}
	if role, _ := tenant.IsMember(user.Name, user.UID); role != authv1.RoleOwner && role != authv1.RoleAdmin && !user.Spec.Administrator {
		return nil, fmt.Errorf("%w: tokens of the service accounts of tenant %s are made, listed and revoked by its admins and owners", ErrForbidden, name)
	}
	if tenant.DeletionTimestamp != nil || tenant.Status.Namespace == "" {
		return nil, fmt.Errorf("%w: tenant: %s is being made or deleted", ErrRefused, name)
	}
	return tenant, nil
}

// byAccount tells who sends a request with a kept API token of a ServiceAccount. What that one may is read now, as for Users.
func (s *Service) byAccount(ctx context.Context, kept metav1.Object) (Identity, error) {
	key, uid, _ := AccountOf(kept)
	says := kept.GetAnnotations()
	if expired, _ := Expired(kept, s.options.Now()); expired || kept.GetDeletionTimestamp() != nil || kept.GetLabels()[authv1.LabelCredential] != kindToken {
		return Identity{}, ErrToken
	}
	tenant := &authv1.Tenant{}
	if err := s.find(ctx, client.ObjectKey{Name: says[annotationTenant]}, tenant); err != nil {
		return Identity{}, tokenError("read the Tenant of the token", err)
	}
	// A Tenant made anew under the name is another one.
	if tenant.UID == "" || string(tenant.UID) != says[annotationTenantUID] || tenant.DeletionTimestamp != nil || tenant.Status.Namespace != key.Namespace {
		return Identity{}, ErrToken
	}
	account := &authv1.ServiceAccount{}
	if err := s.find(ctx, key, account); err != nil {
		return Identity{}, tokenError("read the ServiceAccount of the token", err)
	}
	if uid == "" || account.UID != uid || account.DeletionTimestamp != nil || account.Spec.Disabled {
		return Identity{}, ErrToken
	}
	who := Identity{ServiceAccount: account.Name, UserName: authv1.ServiceAccountName(account.Namespace, account.Name), Groups: []string{authv1.GroupServiceAccounts}}
	if slices.Contains(authv1.ServiceAccountRoles(), account.Spec.Role) {
		who.Groups = append(who.Groups, authv1.GroupOf(tenant.UID, account.Spec.Role))
	}
	slices.Sort(who.Groups)
	_, who.Expires = Expired(kept, s.options.Now())
	return who, nil
}
