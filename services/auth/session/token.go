package session

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

const tokenPrefix = "mnt_"

const dataHash = "hash" // of an API token

// Token is an API token, without its secret.
type Token struct {
	// ID finds it, to revoke it.
	ID string `json:"id"`
	// Name is what the User calls it.
	Name string `json:"name"`
	// Expires is when it ends.
	Expires time.Time `json:"expires"`
}

// CreateToken makes an API token of the User, for programs. Its text is returned this once and can never be read again.
func (s *Service) CreateToken(ctx context.Context, user, name string, life time.Duration) (text string, token Token, err error) {
	if name == "" || len(name) > 128 {
		return "", token, fmt.Errorf("name: %d bytes; must have 1 to 128, to tell tokens apart", len(name))
	}
	if life < time.Minute || life > MaxTokenLife {
		return "", token, fmt.Errorf("expires: %s from now; must be from a minute to %d days from now", life, MaxTokenLife/(24*time.Hour))
	}
	owner := &authv1.User{}
	if err := s.live.Get(ctx, client.ObjectKey{Name: user}, owner); err != nil {
		return "", token, fmt.Errorf("read User %s: %w", user, err)
	}
	if owner.Spec.Disabled || owner.DeletionTimestamp != nil {
		return "", token, fmt.Errorf("no new token for User %s, who is disabled or being deleted", user)
	}
	expires := s.options.Now().Add(life).Truncate(time.Second).UTC()
	made := newSecret(tokenPrefix)
	kept := s.credential(kindToken, made.id, owner, expires, map[string][]byte{dataHash: []byte(made.hash)})
	kept.Annotations[annotationName] = name
	if err := s.live.Create(ctx, kept); err != nil {
		return "", token, fmt.Errorf("keep the token: %w", err)
	}
	return made.text, Token{ID: made.id, Name: name, Expires: expires}, nil
}

// Tokens lists the User's API tokens, by name.
func (s *Service) Tokens(ctx context.Context, user string) ([]Token, error) {
	var list corev1.SecretList
	err := s.live.List(ctx, &list, client.InNamespace(authv1.SystemNamespace),
		client.MatchingLabels{authv1.LabelUser: user, authv1.LabelCredential: kindToken})
	if err != nil {
		return nil, fmt.Errorf("list the tokens of User %s: %w", user, err)
	}
	out := make([]Token, 0, len(list.Items))
	for i := range list.Items {
		expired, at := Expired(&list.Items[i], s.options.Now())
		if !expired {
			out = append(out, Token{ID: strings.TrimPrefix(list.Items[i].Name, kindToken+"-"), Name: list.Items[i].Annotations[annotationName], Expires: at})
		}
	}
	slices.SortFunc(out, func(a, b Token) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return out, nil
}

// RevokeToken ends an API token of the User. One that is somebody else's, or not there, gives ErrToken.
func (s *Service) RevokeToken(ctx context.Context, user, id string) error {
	kept := &corev1.Secret{}
	if err := s.live.Get(ctx, key(kindToken, id), kept); err != nil {
		return tokenError("read the token", err)
	}
	if kept.Labels[authv1.LabelUser] != user || kept.Labels[authv1.LabelCredential] != kindToken {
		return ErrToken
	}
	uid := kept.UID
	if err := s.live.Delete(ctx, kept, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("revoke the token: %w", err)
	}
	return nil
}
