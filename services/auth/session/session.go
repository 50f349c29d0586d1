package session

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

const refreshPrefix = "mnr_"

// Keys of a session's Secret.
const (
	dataRefresh  = "refresh"  // hash of the refresh token
	dataPrevious = "previous" // hash of the one before
	dataRotated  = "rotated"  // when it was replaced, RFC 3339
)

// grace is how long after a refresh its token may come again without ending the session: from a second process of the same User, or
// after an answer that was lost. It is refused all the same.
const grace = 10 * time.Second

// Tokens are what somebody has who is logged in.
type Tokens struct {
	// Access says who sends a request, until Expires.
	Access  string    `json:"access"`
	Expires time.Time `json:"expires"`
	// Refresh gets other Tokens, once, until the session ends.
	Refresh     string    `json:"refresh"`
	SessionEnds time.Time `json:"sessionEnds"`
	// MustChangePassword says that nothing else is possible before.
	MustChangePassword bool `json:"mustChangePassword,omitempty"`
}

// Login begins a session of the User with that password, or fails with ErrLogin.
func (s *Service) Login(ctx context.Context, name, plain string) (Tokens, error) {
	user, err := s.check(ctx, name, plain)
	if err != nil {
		return Tokens{}, err
	}
	ends := s.options.Now().Add(s.options.SessionLife).Truncate(time.Second).UTC()
	refresh := newSecret(refreshPrefix)
	kept := s.credential(kindSession, refresh.id, user, ends, map[string][]byte{dataRefresh: []byte(refresh.hash)})
	if err := s.live.Create(ctx, kept); err != nil {
		return Tokens{}, fmt.Errorf("keep the session: %w", err)
	}
	return s.tokens(ctx, user, refresh, ends)
}

func (s *Service) tokens(ctx context.Context, user *authv1.User, refresh secret, ends time.Time) (Tokens, error) {
	access, expires, err := s.sign(ctx, user.Name, refresh.id, ends)
	if err != nil {
		return Tokens{}, err
	}
	return Tokens{
		Access: access, Expires: expires, Refresh: refresh.text, SessionEnds: ends, MustChangePassword: user.Spec.MustChangePassword,
	}, nil
}

// Refresh gives new Tokens for a refresh token, which is good for nothing afterwards. A token that comes a second time was stolen, by
// whoever came first or second: the session ends.
func (s *Service) Refresh(ctx context.Context, text string) (Tokens, error) {
	given, ok := parse(refreshPrefix, text)
	if !ok {
		return Tokens{}, ErrToken
	}
	kept := &corev1.Secret{}
	if err := s.live.Get(ctx, key(kindSession, given.id), kept); err != nil {
		return Tokens{}, tokenError("read the session", err)
	}
	user := &authv1.User{}
	if err := s.live.Get(ctx, client.ObjectKey{Name: kept.Labels[authv1.LabelUser]}, user); err != nil {
		return Tokens{}, tokenError("read the User of the session", err)
	}
	if !s.alive(kept, user) {
		return Tokens{}, ErrToken
	}
	if equal(string(kept.Data[dataPrevious]), given.hash) {
		rotated, err := time.Parse(time.RFC3339Nano, string(kept.Data[dataRotated]))
		if err == nil && s.options.Now().Sub(rotated) < grace {
			return Tokens{}, ErrToken
		}
		return Tokens{}, s.endStolen(ctx, given.id)
	}
	if !equal(string(kept.Data[dataRefresh]), given.hash) {
		return Tokens{}, ErrToken
	}
	next := renewed(refreshPrefix, given.id)
	kept.Data[dataPrevious] = kept.Data[dataRefresh]
	kept.Data[dataRefresh] = []byte(next.hash)
	kept.Data[dataRotated] = []byte(s.options.Now().UTC().Format(time.RFC3339Nano))
	if err := s.live.Update(ctx, kept); err != nil {
		if apierrors.IsConflict(err) { // another process was first with the same token
			return Tokens{}, ErrToken
		}
		return Tokens{}, tokenError("keep the session", err)
	}
	_, ends := Expired(kept, s.options.Now())
	return s.tokens(ctx, user, next, ends)
}

func (s *Service) endStolen(ctx context.Context, id string) error {
	if err := s.Logout(ctx, id); err != nil {
		return err
	}
	return ErrToken
}

// alive tells whether the session is the User's and the password is still the one it began with.
func (s *Service) alive(kept client.Object, user *authv1.User) bool {
	return s.holds(kept, kindSession, user) && equal(kept.GetAnnotations()[annotationPassword], digest(user.Spec.Password))
}

// Logout ends a session. One that has ended already is a success.
func (s *Service) Logout(ctx context.Context, session string) error {
	kept := &corev1.Secret{}
	kept.Namespace, kept.Name = authv1.SystemNamespace, kindSession+"-"+session
	if err := client.IgnoreNotFound(s.live.Delete(ctx, kept)); err != nil {
		return fmt.Errorf("end the session: %w", err)
	}
	return nil
}

// Revoke ends all sessions of a User, and with tokens all API tokens too.
func Revoke(ctx context.Context, c client.Client, user string, tokens bool) error {
	kinds := []string{kindSession}
	if tokens {
		kinds = append(kinds, kindToken)
	}
	for _, kind := range kinds {
		err := c.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(authv1.SystemNamespace),
			client.MatchingLabels{authv1.LabelUser: user, authv1.LabelCredential: kind})
		if err != nil {
			return fmt.Errorf("revoke the credentials of User %s: %w", user, err)
		}
	}
	return nil
}

// tokenError is ErrToken for what is not there, and the error itself for any other trouble.
func tokenError(doing string, err error) error {
	if apierrors.IsNotFound(err) {
		return ErrToken
	}
	return fmt.Errorf("%s: %w", doing, err)
}
