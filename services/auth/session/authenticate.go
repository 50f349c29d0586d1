package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// Identity is who sends a request.
type Identity struct {
	// User is the name of the User; empty for a ServiceAccount.
	User string
	// ServiceAccount is the name of the ServiceAccount, which is of the only Tenant that Groups give a role in; empty for a User.
	ServiceAccount string
	// UserName and Groups are who that is to Kubernetes, to be impersonated.
	UserName string
	Groups   []string
	// Session is the ID of the session; empty for an API token.
	Session string
	// Token is the ID of the API token; empty for a session.
	Token string
	// Expires is when the session or the API token ends.
	Expires time.Time
	// MustChangePassword says that the User may only do that. Groups is empty then.
	MustChangePassword bool
}

// Authenticator tells who sends a request with a token; *Service is one.
type Authenticator interface {
	// Authenticate fails with ErrToken for a token that is not good, and with another error when that cannot be told.
	Authenticate(ctx context.Context, token string) (Identity, error)
}

var _ Authenticator = (*Service)(nil)

// Authenticate tells who sends a request with an access token or an API token. What the User may is read now: a role that was taken
// away, a password that was changed, a session that was ended count from then on.
func (s *Service) Authenticate(ctx context.Context, token string) (Identity, error) {
	if strings.HasPrefix(token, tokenPrefix) {
		return s.byToken(ctx, token)
	}
	c, err := s.verify(ctx, token)
	if err != nil {
		return Identity{}, err
	}
	kept := &metav1.PartialObjectMetadata{}
	kept.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := s.find(ctx, key(kindSession, c.Session), kept); err != nil {
		return Identity{}, tokenError("read the session", err)
	}
	user := &authv1.User{}
	if err := s.find(ctx, client.ObjectKey{Name: c.Subject}, user); err != nil {
		return Identity{}, tokenError("read the User of the session", err)
	}
	if !s.alive(kept, user) {
		return Identity{}, ErrToken
	}
	return s.identity(ctx, user, kept, c.Session)
}

func (s *Service) byToken(ctx context.Context, text string) (Identity, error) {
	given, ok := parse(tokenPrefix, text)
	if !ok {
		return Identity{}, ErrToken
	}
	kept := &metav1.PartialObjectMetadata{}
	kept.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := s.find(ctx, key(kindToken, given.id), kept); err != nil {
		return Identity{}, tokenError("read the token", err)
	}
	// Who does not know the token learns nothing of its User, not even by how long it takes.
	if !equal(kept.Annotations[annotationHash], given.hash) {
		return Identity{}, ErrToken
	}
	if _, _, ok := AccountOf(kept); ok {
		who, err := s.byAccount(ctx, kept)
		who.Token = given.id
		return who, err
	}
	user := &authv1.User{}
	if err := s.find(ctx, client.ObjectKey{Name: kept.Labels[authv1.LabelUser]}, user); err != nil {
		return Identity{}, tokenError("read the User of the token", err)
	}
	if !s.holds(kept, kindToken, user) {
		return Identity{}, ErrToken
	}
	who, err := s.identity(ctx, user, kept, "")
	who.Token = given.id
	return who, err
}

// find reads an object where a cache may be, and from the API server when it is not there: it may be new.
func (s *Service) find(ctx context.Context, key client.ObjectKey, into client.Object) error {
	err := s.read.Get(ctx, key, into)
	if apierrors.IsNotFound(err) && s.read != client.Reader(s.live) {
		return s.live.Get(ctx, key, into)
	}
	return err
}

// identity is who the User is to Kubernetes, with the credential that is kept.
func (s *Service) identity(ctx context.Context, user *authv1.User, kept metav1.Object, session string) (Identity, error) {
	who := Identity{User: user.Name, UserName: authv1.UserName(user.Name), Session: session, MustChangePassword: user.Spec.MustChangePassword}
	_, who.Expires = Expired(kept, s.options.Now())
	if user.Spec.MustChangePassword {
		return who, nil
	}
	var tenants authv1.TenantList
	if err := s.read.List(ctx, &tenants, client.UnsafeDisableDeepCopy); err != nil { // they are only looked at, for each request, and may be many
		return Identity{}, fmt.Errorf("list the Tenants of User %s: %w", user.Name, err)
	}
	who.Groups = narrow(groups(user, tenants.Items), kept, tenants.Items)
	slices.Sort(who.Groups)
	return who, nil
}

// groups are those of the User.
func groups(user *authv1.User, tenants []authv1.Tenant) []string {
	out := []string{authv1.GroupUsers, authv1.GroupOfUser(user.UID)}
	if user.Spec.Administrator {
		out = append(out, authv1.GroupAdministrators)
	}
	for i := range tenants {
		if role, ok := tenants[i].IsMember(user.Name, user.UID); ok {
			out = append(out, authv1.GroupOf(tenants[i].UID, role))
		}
	}
	return out
}
