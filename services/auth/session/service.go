package session

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// Errors. They say nothing about which Users there are.
var (
	// ErrLogin: the name or the password is wrong, or the User may not log in, or not yet.
	ErrLogin = errors.New("the name or the password is wrong, or there were too many tries: wait a little and try again")
	// ErrToken: the token is none of ours, or has expired, or was revoked.
	ErrToken = errors.New("the token is not valid, has expired or was revoked: log in again")
	// ErrBusy: somebody else changed the same at the same time, or too many are logging in.
	ErrBusy = errors.New("too much at once: try again")
)

// Options are how long things last. What is zero has the default.
type Options struct {
	// AccessLife is how long an access token is good for: 10 minutes.
	AccessLife time.Duration
	// SessionLife is how long a session lasts, refreshed or not: 7 days.
	SessionLife time.Duration
	// KeyLife is how long a key signs: 30 days.
	KeyLife time.Duration
	// Now is time.Now, or a test's clock.
	Now func() time.Time
}

func (o Options) complete() Options {
	for _, d := range []struct {
		value *time.Duration
		or    time.Duration
	}{{&o.AccessLife, 10 * time.Minute}, {&o.SessionLife, 7 * 24 * time.Hour}, {&o.KeyLife, 30 * 24 * time.Hour}} {
		if *d.value <= 0 {
			*d.value = d.or
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// MaxTokenLife is the longest life of an API token.
const MaxTokenLife = 366 * 24 * time.Hour

// Kinds of what a Secret keeps, the values of authv1.LabelCredential.
const (
	kindSession = "session"
	kindToken   = "token"
	kindKeys    = "signing-keys"
)

// Annotations of a Secret that keeps a session or an API token.
const (
	// AnnotationExpires is when it ends, RFC 3339.
	AnnotationExpires = "auth.mnicloud.jp/expires"
	// annotationUID is the UID of the User.
	annotationUID = "auth.mnicloud.jp/user-uid"
	// annotationPassword is a digest of the hash of the password at the time of the login. A session ends when the password changes.
	annotationPassword = "auth.mnicloud.jp/password-digest"
	// annotationName is what the User calls an API token.
	annotationName = "auth.mnicloud.jp/token-name"
	// annotationHash is the hash of an API token. The token is random, so that it cannot be found by trying, and the metadata of Secrets is
	// what processes have at hand.
	annotationHash = "auth.mnicloud.jp/token-hash"
	// annotationAccount is NAMESPACE/NAME of the ServiceAccount that an API token is of, annotationCreatedBy the User who asked for it.
	annotationAccount   = "auth.mnicloud.jp/service-account"
	annotationCreatedBy = "auth.mnicloud.jp/token-created-by"
	// annotationTenant and annotationTenantUID are the only Tenant of an API token, annotationRole is its mightiest role.
	annotationTenant    = "auth.mnicloud.jp/token-tenant"
	annotationTenantUID = "auth.mnicloud.jp/token-tenant-uid"
	annotationRole      = "auth.mnicloud.jp/token-role"
)

// Service makes, checks and ends sessions and API tokens.
type Service struct {
	live    client.Client
	read    client.Reader
	options Options
	keys    *keyring
	// verified are access tokens, by their digests, whose signature was verified.
	verified *lru.Cache
	// slots bound how many passwords are compared at once: each takes a processor for a quarter of a second.
	slots chan struct{}
}

// New makes a service. live reads and writes without a cache; read may have one (of Users, Tenants, ServiceAccounts, and the metadata of Secrets in the
// system's namespace), or be live itself: who sends a request is looked up there first.
func New(live client.Client, read client.Reader, options Options) *Service {
	options = options.complete()
	return &Service{
		live: live, read: read, options: options, keys: &keyring{client: live, options: options},
		verified: lru.New(maxVerified), slots: make(chan struct{}, 2),
	}
}

// secret is a token that only its holder knows: PREFIX_ID_SECRET. The ID finds the Secret that keeps the hash.
type secret struct{ id, text, hash string }

func newSecret(prefix string) secret {
	id, random := make([]byte, 16), make([]byte, 32)
	_, _ = rand.Read(id) // never fails
	_, _ = rand.Read(random)
	return secretWith(prefix, hex.EncodeToString(id), random)
}

// renewed has the same ID and another secret.
func renewed(prefix, id string) secret {
	random := make([]byte, 32)
	_, _ = rand.Read(random)
	return secretWith(prefix, id, random)
}

func secretWith(prefix, id string, random []byte) secret {
	text := prefix + id + "_" + base64.RawURLEncoding.EncodeToString(random)
	return secret{id: id, text: text, hash: digest(text)}
}

// parse reads the ID out of a token with the prefix.
func parse(prefix, text string) (secret, bool) {
	rest, found := strings.CutPrefix(text, prefix)
	id, random, ok := strings.Cut(rest, "_")
	if !found || !ok || !isID(id) || len(random) != 43 {
		return secret{}, false
	}
	return secret{id: id, text: text, hash: digest(text)}, true
}

// isID tells whether a text is the ID of a session or an API token.
func isID(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == 32 && text == strings.ToLower(text)
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func equal(a, b string) bool { return a != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// credential is the Secret that keeps a session or an API token of the User.
func (s *Service) credential(kind, id string, user *authv1.User, expires time.Time, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: authv1.SystemNamespace, Name: kind + "-" + id,
			Labels: map[string]string{authv1.LabelCredential: kind, authv1.LabelUser: user.Name},
			Annotations: map[string]string{
				AnnotationExpires: expires.UTC().Format(time.RFC3339), annotationUID: string(user.UID),
				annotationPassword: digest(user.Spec.Password),
			},
		},
		Data: data,
	}
}

// Expired tells whether what a Secret keeps has ended, and when it does. One that does not say has.
func Expired(o metav1.Object, now time.Time) (expired bool, at time.Time) {
	at, err := time.Parse(time.RFC3339, o.GetAnnotations()[AnnotationExpires])
	return err != nil || !now.Before(at), at
}

// holds tells whether the credential is of the kind and still this User's: not expired, and the User is the one it was made for and is
// not disabled.
func (s *Service) holds(o metav1.Object, kind string, user *authv1.User) bool {
	expired, _ := Expired(o, s.options.Now())
	return !expired && o.GetDeletionTimestamp() == nil && o.GetLabels()[authv1.LabelCredential] == kind &&
		o.GetLabels()[authv1.LabelUser] == user.Name && types.UID(o.GetAnnotations()[annotationUID]) == user.UID &&
		user.DeletionTimestamp == nil && !user.Spec.Disabled
}

func key(kind, id string) client.ObjectKey {
	return client.ObjectKey{Namespace: authv1.SystemNamespace, Name: kind + "-" + id}
}
