package session

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// keysName is the Secret with the keys: each has its name, SECONDS-RANDOM with the time at which it was made, as the data's key.
const keysName = "signing-keys"

// issuer and audience of access tokens.
const (
	issuer   = "mnicloud"
	audience = "mnicloud-api"
)

// EnsureKeys makes the first signing key, a new one when the newest has signed for long enough, and deletes those whose tokens have all
// expired. It says when it is needed again.
func (s *Service) EnsureKeys(ctx context.Context) (time.Time, error) {
	secret := &corev1.Secret{}
	err := s.live.Get(ctx, client.ObjectKey{Namespace: authv1.SystemNamespace, Name: keysName}, secret)
	if client.IgnoreNotFound(err) != nil {
		return time.Time{}, fmt.Errorf("read the signing keys: %w", err)
	}
	missing := err != nil
	next, changed := s.turn(secret)
	switch {
	case missing:
		secret.ObjectMeta = metav1.ObjectMeta{
			Namespace: authv1.SystemNamespace, Name: keysName, Labels: map[string]string{authv1.LabelCredential: kindKeys},
		}
		err = s.live.Create(ctx, secret)
	case changed:
		err = s.live.Update(ctx, secret)
	default:
		return next, nil
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) { // another process did it
		return s.options.Now(), nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("write the signing keys: %w", err)
	}
	return next, nil
}

// turn brings the keys to the present time and says when they change next.
func (s *Service) turn(secret *corev1.Secret) (next time.Time, changed bool) {
	now := s.options.Now()
	all := names(secret.Data)
	if len(all) == 0 || !now.Before(made(all[len(all)-1]).Add(s.options.KeyLife)) {
		random, seed := make([]byte, 4), make([]byte, ed25519.SeedSize)
		_, _ = rand.Read(random) // never fails
		_, _ = rand.Read(seed)
		name := strconv.FormatInt(now.Unix(), 10) + "-" + hex.EncodeToString(random)
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[name] = seed
		all, changed = append(all, name), true
	}
	next = made(all[len(all)-1]).Add(s.options.KeyLife)
	for i, name := range all[:len(all)-1] {
		// The key's last token was signed when its successor was made, or a minute later, by a process that did not know yet.
		gone := made(all[i+1]).Add(s.options.AccessLife + 2*keysFresh)
		if !now.Before(gone) {
			delete(secret.Data, name)
			changed = true
		} else if gone.Before(next) {
			next = gone
		}
	}
	return next, changed
}

// names are those of the keys, the oldest first.
func names(data map[string][]byte) []string {
	var out []string
	for name, seed := range data {
		if len(seed) == ed25519.SeedSize && !made(name).IsZero() {
			out = append(out, name)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return made(a).Compare(made(b)) })
	return out
}

func made(name string) time.Time {
	seconds, _, _ := strings.Cut(name, "-")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

// keysFresh is how long a process signs with the keys it has read; after that it reads them again.
const keysFresh = time.Minute

// keyring is a process's copy of the keys.
type keyring struct {
	client  client.Reader
	options Options
	mu      sync.Mutex
	keys    map[string]ed25519.PrivateKey
	newest  string
	read    time.Time
	missed  time.Time
}

// load reads the keys, unless they were read just now. The caller holds the lock.
func (k *keyring) load(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: authv1.SystemNamespace, Name: keysName}, secret); err != nil {
		return fmt.Errorf("read the signing keys: %w", err)
	}
	k.keys = map[string]ed25519.PrivateKey{}
	for _, name := range names(secret.Data) {
		k.keys[name], k.newest = ed25519.NewKeyFromSeed(secret.Data[name]), name
	}
	k.read = k.options.Now()
	return nil
}

func (k *keyring) fresh(ctx context.Context) error {
	if age := k.options.Now().Sub(k.read); len(k.keys) > 0 && age >= 0 && age < keysFresh {
		return nil
	}
	return k.load(ctx)
}

// signing is the newest key and its name.
func (k *keyring) signing(ctx context.Context) (string, ed25519.PrivateKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.fresh(ctx); err != nil {
		return "", nil, err
	}
	if len(k.keys) == 0 {
		return "", nil, errors.New("there is no signing key yet")
	}
	return k.newest, k.keys[k.newest], nil
}

// verifying is the key of that name. One that is not known is looked up, at most once a second: anybody can send any name.
func (k *keyring) verifying(ctx context.Context, name string) (ed25519.PublicKey, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.fresh(ctx); err != nil {
		return nil, err
	}
	now := k.options.Now()
	if _, found := k.keys[name]; !found && now.Sub(k.missed) >= time.Second {
		k.missed = now
		if err := k.load(ctx); err != nil {
			return nil, err
		}
	}
	private, found := k.keys[name]
	if !found {
		return nil, ErrToken
	}
	return private.Public().(ed25519.PublicKey), nil
}

// claims of an access token. It says which session of which User it belongs to, and nothing about rights.
type claims struct {
	jwt.RegisteredClaims
	Session string `json:"sid"`
}

// sign makes an access token.
func (s *Service) sign(ctx context.Context, user, session string, until time.Time) (string, time.Time, error) {
	name, key, err := s.keys.signing(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	now := s.options.Now()
	expires := now.Add(s.options.AccessLife)
	if until.Before(expires) {
		expires = until
	}
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{Session: session, RegisteredClaims: jwt.RegisteredClaims{
		Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: user, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires),
	}})
	token.Header["kid"], token.Header["typ"] = name, "at+jwt"
	text, err := token.SignedString(key)
	return text, expires, err
}

// verified is an access token whose signature was found good.
type verified struct {
	claims claims
	// name and key it was signed with.
	name string
	key  ed25519.PublicKey
}

// maxVerified is how many tokens of which a process remembers that they were signed with a key: to find that out takes longer than all else that
// is looked at.
const maxVerified = 4096

// verify reads an access token. ErrToken is all that is said of a bad one. Only the signature's verification is remembered: the time and the key are
// looked at each time.
func (s *Service) verify(ctx context.Context, text string) (claims, error) {
	sum := sha256.Sum256([]byte(text))
	var v verified
	if known, ok := s.verified.Get(sum); ok {
		v = known.(verified)
		key, err := s.keys.verifying(ctx, v.name)
		if err != nil {
			return claims{}, err
		}
		if !v.key.Equal(key) || jwt.NewValidator(s.rules()...).Validate(v.claims) != nil {
			return claims{}, ErrToken
		}
		return v.claims, nil
	}
	var trouble error
	_, err := jwt.NewParser(s.rules()...).ParseWithClaims(text, &v.claims, func(t *jwt.Token) (any, error) {
		name, ok := t.Header["kid"].(string)
		if !ok || t.Header["typ"] != "at+jwt" {
			return nil, ErrToken
		}
		key, err := s.keys.verifying(ctx, name)
		if err != nil && !errors.Is(err, ErrToken) {
			trouble = err
		}
		v.name, v.key = name, key
		return key, err
	})
	switch {
	case trouble != nil:
		return claims{}, trouble
	case err != nil || v.claims.Subject == "" || v.claims.Session == "":
		return claims{}, ErrToken
	}
	s.verified.Add(sum, v)
	return v.claims, nil
}

// rules are what an access token must keep, beside its signature.
func (s *Service) rules() []jwt.ParserOption {
	return []jwt.ParserOption{
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithIssuer(issuer), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(s.options.Now),
	}
}
