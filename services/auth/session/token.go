package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

const tokenPrefix = "mnt_"

// maxTokens is how many API tokens a User may have.
const maxTokens = 100

// ErrRefused is in the error for API tokens that cannot be made, listed or revoked as it was asked for. What is wrong is said after it.
var ErrRefused = errors.New("refused")

// Scope is what an API token may do of what its User may. The zero value is all of it.
type Scope struct {
	// Tenant is the name of the only Tenant in which it may do something.
	Tenant string `json:"tenant,omitempty"`
	// Role is the mightiest that it has in a Tenant.
	Role authv1.Role `json:"role,omitempty"`
}

// Token is an API token, without its secret.
type Token struct {
	// ID finds it, to revoke it.
	ID string `json:"id"`
	// Name is what who made it calls it.
	Name string `json:"name"`
	Scope
	// ServiceAccount is the name of the one of Scope.Tenant that it is of; empty for a User's. CreatedBy is the User who made it.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	CreatedBy      string `json:"createdBy,omitempty"`
	// Expires is when it ends.
	Expires time.Time `json:"expires"`
}

// CreateToken makes an API token of the User, for programs. Its text is returned this once and can never be read again.
func (s *Service) CreateToken(ctx context.Context, user, name string, life time.Duration, scope Scope) (text string, token Token, err error) {
	refused := func(format string, args ...any) (string, Token, error) {
		return "", Token{}, fmt.Errorf("%w: "+format, append([]any{ErrRefused}, args...)...)
	}
	if err := checkToken(name, life); err != nil {
		return "", token, err
	}
	if scope.Role != "" && !slices.Contains(authv1.Roles(), scope.Role) {
		return refused("role: %q is none; must be owner, admin, member or viewer", scope.Role)
	}
	owner := &authv1.User{}
	if err := s.live.Get(ctx, client.ObjectKey{Name: user}, owner); err != nil {
		return "", token, fmt.Errorf("read User %s: %w", user, err)
	}
	if owner.Spec.Disabled || owner.DeletionTimestamp != nil || owner.Spec.MustChangePassword {
		return refused("User %s is disabled, being deleted, or must change the password first", user)
	}
	expires := s.options.Now().Add(life).Truncate(time.Second).UTC()
	made := newSecret(tokenPrefix)
	kept := s.credential(kindToken, made.id, owner, expires, nil)
	kept.Annotations[annotationName], kept.Annotations[annotationHash] = name, made.hash
	if scope.Role != "" {
		kept.Annotations[annotationRole] = string(scope.Role)
	}
	if scope.Tenant != "" {
		tenant, err := s.tenantFor(ctx, owner, scope.Tenant)
		if err != nil {
			return "", token, err
		}
		kept.Annotations[annotationTenant], kept.Annotations[annotationTenantUID] = tenant.Name, string(tenant.UID)
	}
	present, err := s.tokensOf(ctx, owner)
	if err != nil {
		return "", token, err
	}
	if len(present) >= maxTokens {
		return refused("User %s has %d tokens; revoke those that are not used", user, len(present))
	}
	if err := s.live.Create(ctx, kept); err != nil {
		return "", token, fmt.Errorf("keep the token: %w", err)
	}
	return made.text, tokenOf(kept, made.id, expires), nil
}

// checkToken says what is wrong with the name and the life of a token to be made.
func checkToken(name string, life time.Duration) error {
	if name == "" || len(name) > 128 {
		return fmt.Errorf("%w: name: %d bytes; must have 1 to 128, to tell tokens apart", ErrRefused, len(name))
	}
	if !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%w: name: %q; must be of characters that are printed: others would move the cursor of who lists tokens", ErrRefused, name)
	}
	if life < time.Minute || life > MaxTokenLife {
		return fmt.Errorf("%w: expires: %s from now; must be from a minute to %d days from now", ErrRefused, life, MaxTokenLife/(24*time.Hour))
	}
	return nil
}

// tenantFor is the Tenant of that name, in which the User has a role.
func (s *Service) tenantFor(ctx context.Context, user *authv1.User, name string) (*authv1.Tenant, error) {
	tenant := &authv1.Tenant{}
	if isName(name) { // no path
		if err := client.IgnoreNotFound(s.live.Get(ctx, client.ObjectKey{Name: name}, tenant)); err != nil {
			return nil, fmt.Errorf("read Tenant %s: %w", name, err)
		}
	}
	if _, member := tenant.IsMember(user.Name, user.UID); tenant.UID == "" || !member && !user.Spec.Administrator {
		return nil, fmt.Errorf("%w: tenant: there is no tenant %q that you are a member of", ErrRefused, name)
	}
	return tenant, nil
}

func tokenOf(kept metav1.Object, id string, expires time.Time) Token {
	says := kept.GetAnnotations()
	token := Token{ID: id, Name: says[annotationName], Expires: expires, Scope: Scope{Tenant: says[annotationTenant], Role: authv1.Role(says[annotationRole])}}
	if account, _, ok := AccountOf(kept); ok {
		token.ServiceAccount, token.CreatedBy = account.Name, says[annotationCreatedBy]
	}
	return token
}

// Tokens lists the User's API tokens, by name.
func (s *Service) Tokens(ctx context.Context, user string) ([]Token, error) {
	owner := &authv1.User{}
	if err := s.live.Get(ctx, client.ObjectKey{Name: user}, owner); err != nil {
		return nil, fmt.Errorf("read User %s: %w", user, err)
	}
	return s.tokensOf(ctx, owner)
}

// tokensOf are those of this very User: what is left of one that had the name before are not.
func (s *Service) tokensOf(ctx context.Context, user *authv1.User) ([]Token, error) {
	tokens, err := s.listTokens(ctx, client.MatchingLabels{authv1.LabelUser: user.Name, authv1.LabelCredential: kindToken},
		func(o metav1.Object) bool { return s.holds(o, kindToken, user) })
	if err != nil {
		return nil, fmt.Errorf("list the tokens of User %s: %w", user.Name, err)
	}
	return tokens, nil
}

// listTokens are those with the labels that count, by name.
func (s *Service) listTokens(ctx context.Context, labels client.MatchingLabels, counts func(metav1.Object) bool) ([]Token, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := s.live.List(ctx, list, client.InNamespace(authv1.SystemNamespace), labels); err != nil {
		return nil, err
	}
	out := make([]Token, 0, len(list.Items))
	for i := range list.Items {
		if counts(&list.Items[i]) {
			_, at := Expired(&list.Items[i], s.options.Now())
			out = append(out, tokenOf(&list.Items[i], strings.TrimPrefix(list.Items[i].Name, kindToken+"-"), at))
		}
	}
	slices.SortFunc(out, func(a, b Token) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return out, nil
}

// RevokeToken ends an API token of the User. One that is somebody else's, or not there, gives ErrToken.
func (s *Service) RevokeToken(ctx context.Context, user, id string) error {
	return s.revoke(ctx, id, func(kept metav1.Object) bool {
		whose, ok := kept.GetLabels()[authv1.LabelUser]
		return ok && whose == user
	})
}

// revoke ends the API token with the ID if it is the right one's; ErrToken when it is not.
func (s *Service) revoke(ctx context.Context, id string, isRight func(metav1.Object) bool) error {
	if !isID(id) {
		return ErrToken
	}
	kept := &corev1.Secret{}
	if err := s.live.Get(ctx, key(kindToken, id), kept); err != nil {
		return tokenError("read the token", err)
	}
	if kept.Labels[authv1.LabelCredential] != kindToken || !isRight(kept) {
		return ErrToken
	}
	uid := kept.UID
	if err := s.live.Delete(ctx, kept, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("revoke the token: %w", err)
	}
	return nil
}

// narrow is what is left of a User's groups with the scope of a kept token. A scope only takes away: with one, nobody is an administrator
// of the cloud, who has in each Tenant what its owner has.
func narrow(groups []string, kept metav1.Object, tenants []authv1.Tenant) []string {
	says := kept.GetAnnotations()
	only, role := says[annotationTenantUID], authv1.Role(says[annotationRole])
	if only == "" && role == "" {
		return groups
	}
	out := []string{authv1.GroupUsers}
	if role != "" && !slices.Contains(authv1.Roles(), role) {
		return out
	}
	for i := range tenants {
		uid := tenants[i].UID
		if only != "" && string(uid) != only {
			continue
		}
		if has := roleIn(groups, &tenants[i]); has != "" {
			out = append(out, authv1.GroupOf(uid, weaker(has, role)))
		}
	}
	return out
}

// roleIn is the role that groups give in a Tenant.
func roleIn(groups []string, tenant *authv1.Tenant) authv1.Role {
	if slices.Contains(groups, authv1.GroupAdministrators) {
		return authv1.RoleOwner
	}
	for _, role := range authv1.Roles() {
		if slices.Contains(groups, authv1.GroupOf(tenant.UID, role)) {
			return role
		}
	}
	return ""
}

// weaker is the weaker of a role and a bound of it, if there is one.
func weaker(role, bound authv1.Role) authv1.Role {
	if bound == "" {
		return role
	}
	all := authv1.Roles()
	return all[max(slices.Index(all, role), slices.Index(all, bound))]
}
