package session

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/auth/password"
)

// world is a service over an API in memory, with a clock of the test's own. That the API server hashes passwords is tested in the
// controller's room; here they are hashed by hand.
type world struct {
	*Service
	client.Client
	t   *testing.T
	ctx context.Context
	mu  sync.Mutex
	now time.Time
}

const right = "correct horse"

var hashOnce = sync.OnceValue(func() string {
	hash, err := password.Hash(right, password.MinCost)
	if err != nil {
		panic(err)
	}
	return hash
})

func newWorld(t *testing.T) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, authv1.AddToScheme(scheme))
	w := &world{t: t, ctx: t.Context(), now: time.Unix(1_800_000_000, 0)}
	w.Client = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&authv1.User{}, &authv1.Tenant{}, &authv1.ServiceAccount{}).Build()
	w.Service = w.another()
	_, err := w.EnsureKeys(w.ctx)
	require.NoError(t, err)
	w.user("ada")
	return w
}

// another is a service in another process.
func (w *world) another() *Service {
	return New(w.Client, w.Client, Options{Now: func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.now
	}})
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) user(name string) *authv1.User {
	w.t.Helper()
	user := &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)}, Spec: authv1.UserSpec{Password: hashOnce()}}
	require.NoError(w.t, w.Create(w.ctx, user))
	return user
}

func (w *world) stored(name string) *authv1.User {
	w.t.Helper()
	user := &authv1.User{}
	require.NoError(w.t, w.Get(w.ctx, client.ObjectKey{Name: name}, user))
	return user
}

func (w *world) change(name string, change func(*authv1.User)) {
	w.t.Helper()
	user := w.stored(name)
	change(user)
	require.NoError(w.t, w.Update(w.ctx, user))
}

// tenant is a Tenant in which ada has a role.
func (w *world) tenant(name string, role authv1.Role) *authv1.Tenant {
	w.t.Helper()
	tenant := &authv1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")},
		Spec:       authv1.TenantSpec{Members: []authv1.Member{{User: "ada", Role: role}}},
		Status:     authv1.TenantStatus{Members: []authv1.MemberStatus{{User: "ada", UID: "uid-of-ada", State: authv1.MemberActive}}},
	}
	status := tenant.Status
	require.NoError(w.t, w.Create(w.ctx, tenant))
	tenant.Status = status
	require.NoError(w.t, w.Status().Update(w.ctx, tenant))
	return tenant
}

func (w *world) login() Tokens {
	w.t.Helper()
	tokens, err := w.Login(w.ctx, "ada", right)
	require.NoError(w.t, err)
	return tokens
}

func (w *world) refused(token string) {
	w.t.Helper()
	_, err := w.Authenticate(w.ctx, token)
	require.ErrorIs(w.t, err, ErrToken)
}

func TestWhoIsLoggedInHasTheGroupsOfItsRolesNow(t *testing.T) {
	w := newWorld(t)
	stored := w.tenant("red", authv1.RoleAdmin)
	tokens := w.login()
	who, err := w.Authenticate(w.ctx, tokens.Access)
	require.NoError(t, err)
	require.Equal(t, "mni:user:ada", who.UserName)
	require.Equal(t, []string{"mni:self:uid-of-ada", "mni:tenant:red-uid:admin", "mni:users"}, who.Groups)

	w.change("ada", func(u *authv1.User) { u.Spec.Administrator = true })
	who, err = w.another().Authenticate(w.ctx, tokens.Access)
	require.NoError(t, err)
	require.Contains(t, who.Groups, "mni:administrators", "in another process too")

	stored.Spec.Members = nil
	require.NoError(t, w.Update(w.ctx, stored))
	who, err = w.Authenticate(w.ctx, tokens.Access)
	require.NoError(t, err)
	require.Equal(t, []string{"mni:administrators", "mni:self:uid-of-ada", "mni:users"}, who.Groups, "what was taken away counts at once")

	w.change("ada", func(u *authv1.User) { u.Spec.MustChangePassword = true })
	who, err = w.Authenticate(w.ctx, tokens.Access)
	require.NoError(t, err)
	require.True(t, who.MustChangePassword)
	require.Empty(t, who.Groups)
}

func TestASessionEndsWithItsTimeItsPasswordItsUserAndALogout(t *testing.T) {
	for what, end := range map[string]func(*world, Tokens){
		"time":     func(w *world, _ Tokens) { w.pass(11 * time.Minute) },
		"password": func(w *world, _ Tokens) { w.change("ada", func(u *authv1.User) { u.Spec.Password = nobodys() }) },
		"disabled": func(w *world, _ Tokens) { w.change("ada", func(u *authv1.User) { u.Spec.Disabled = true }) },
		"user":     func(w *world, _ Tokens) { require.NoError(w.t, w.Delete(w.ctx, w.stored("ada"))) },
		"another user of the name": func(w *world, _ Tokens) {
			require.NoError(w.t, w.Delete(w.ctx, w.stored("ada")))
			require.NoError(w.t, w.Create(w.ctx, &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: "ada", UID: "another"}, Spec: authv1.UserSpec{Password: hashOnce()}}))
		},
		"logout": func(w *world, tokens Tokens) {
			who, err := w.Authenticate(w.ctx, tokens.Access)
			require.NoError(w.t, err)
			require.NoError(w.t, w.Logout(w.ctx, who.Session))
			require.NoError(w.t, w.Logout(w.ctx, who.Session), "twice is a success")
		},
		"revocation": func(w *world, _ Tokens) { require.NoError(w.t, Revoke(w.ctx, w.Client, "ada", false)) },
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			tokens := w.login()
			_, err := w.Authenticate(w.ctx, tokens.Access)
			require.NoError(t, err)
			end(w, tokens)
			w.refused(tokens.Access)
			_, err = w.Refresh(w.ctx, tokens.Refresh)
			if what == "time" {
				require.NoError(t, err, "a session outlives its access tokens")
				return
			}
			require.ErrorIs(t, err, ErrToken)
		})
	}
}

func nobodys() string {
	return "$2a$10$" + strings.Repeat("a", 53)
}

func TestARefreshTokenIsGoodOnceAndASecondUseEndsTheSession(t *testing.T) {
	w := newWorld(t)
	first := w.login()
	second, err := w.Refresh(w.ctx, first.Refresh)
	require.NoError(t, err)
	_, err = w.Refresh(w.ctx, first.Refresh)
	require.ErrorIs(t, err, ErrToken, "at once: a second process of the same User")
	_, err = w.Authenticate(w.ctx, second.Access)
	require.NoError(t, err, "which does not end the session")
	w.pass(time.Minute)
	_, err = w.Refresh(w.ctx, first.Refresh)
	require.ErrorIs(t, err, ErrToken)
	w.refused(second.Access)
	_, err = w.Refresh(w.ctx, second.Refresh)
	require.ErrorIs(t, err, ErrToken, "later: somebody stole it")
}

func TestASessionIsNotRefreshedForEver(t *testing.T) {
	w := newWorld(t)
	tokens := w.login()
	for range 6 {
		w.pass(24 * time.Hour)
		next, err := w.Refresh(w.ctx, tokens.Refresh)
		require.NoError(t, err)
		tokens = next
	}
	w.pass(24 * time.Hour)
	_, err := w.Refresh(w.ctx, tokens.Refresh)
	require.ErrorIs(t, err, ErrToken)
}

func TestWrongPasswordsLockOutForLongerAndLonger(t *testing.T) {
	w := newWorld(t)
	wrong := func() error {
		_, err := w.Login(w.ctx, "ada", "wrong password")
		return err
	}
	for range freeTries {
		require.ErrorIs(t, wrong(), ErrLogin)
	}
	_, err := w.Login(w.ctx, "ada", right)
	require.ErrorIs(t, err, ErrLogin, "locked: the right one is not listened to either")
	w.pass(2 * time.Second)
	w.login()
	require.Zero(t, w.stored("ada").Status.Login, "the right one clears the count")
	for range 40 {
		require.ErrorIs(t, wrong(), ErrLogin)
		w.pass(longestLock + time.Second)
	}
	require.ErrorIs(t, wrong(), ErrLogin)
	w.pass(longestLock - time.Minute)
	_, err = w.Login(w.ctx, "ada", right)
	require.ErrorIs(t, err, ErrLogin)
	require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, longestLock, longestLock},
		[]time.Duration{lock(4), lock(5), lock(6), lock(7), lock(15), lock(1000)})
}

func TestManyWrongPasswordsAtOnceAllCount(t *testing.T) {
	w := newWorld(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { _, _ = w.another().Login(w.ctx, "ada", "wrong password") })
	}
	group.Wait()
	require.GreaterOrEqual(t, w.stored("ada").Status.Login.Failures, int32(freeTries))
	require.NotNil(t, w.stored("ada").Status.Login.LockedUntil)
}

// https://github.com/bcrypt-ruby/bcrypt-ruby/issues/283
func TestWhoCannotLogInIsNotToldWhy(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 72)
	hash, err := password.Hash(long, password.MinCost)
	require.NoError(t, err)
	w.user("no-password")
	w.change("no-password", func(u *authv1.User) { u.Spec.Password = "" })
	w.user("disabled")
	w.change("disabled", func(u *authv1.User) { u.Spec.Disabled = true })
	w.user("long")
	w.change("long", func(u *authv1.User) { u.Spec.Password = hash })
	for name, plain := range map[string]string{
		"nobody": right, "no-password": "", "disabled": right, "long": long + "y", "../ada": right, "": right, "ada": hashOnce(),
	} {
		_, err := w.Login(w.ctx, name, plain)
		require.Equal(t, ErrLogin, err, name)
	}
	_, err = w.Login(w.ctx, "long", long)
	require.NoError(t, err)
}

func TestTokensThatAreNotOursAreRefused(t *testing.T) {
	w := newWorld(t)
	tokens := w.login()
	who, err := w.Authenticate(w.ctx, tokens.Access)
	require.NoError(t, err)
	name, key, err := w.keys.signing(w.ctx)
	require.NoError(t, err)
	sign := func(method jwt.SigningMethod, key any, change func(*jwt.Token, *claims)) string {
		c := claims{Session: who.Session, RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: "ada", ExpiresAt: jwt.NewNumericDate(w.now.Add(time.Minute)),
		}}
		token := jwt.NewWithClaims(method, &c)
		token.Header["kid"], token.Header["typ"] = name, "at+jwt"
		change(token, &c)
		text, err := token.SignedString(key)
		require.NoError(t, err)
		return text
	}
	same := func(*jwt.Token, *claims) {}
	_, err = w.Authenticate(w.ctx, sign(jwt.SigningMethodEdDSA, key, same))
	require.NoError(t, err, "the others differ in one thing from this")
	_, strange, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	w.user("eve")
	for what, token := range map[string]string{
		"no algorithm":       sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, same),
		"public key as HMAC": sign(jwt.SigningMethodHS256, []byte(key.Public().(ed25519.PublicKey)), same),
		"another's key":      sign(jwt.SigningMethodEdDSA, strange, same),
		"another type":       sign(jwt.SigningMethodEdDSA, key, func(t *jwt.Token, _ *claims) { t.Header["typ"] = "JWT" }),
		"no key's name":      sign(jwt.SigningMethodEdDSA, key, func(t *jwt.Token, _ *claims) { delete(t.Header, "kid") }),
		"an unknown key":     sign(jwt.SigningMethodEdDSA, key, func(t *jwt.Token, _ *claims) { t.Header["kid"] = "../x" }),
		"no end":             sign(jwt.SigningMethodEdDSA, key, func(_ *jwt.Token, c *claims) { c.ExpiresAt = nil }),
		"another audience":   sign(jwt.SigningMethodEdDSA, key, func(_ *jwt.Token, c *claims) { c.Audience = jwt.ClaimStrings{"x"} }),
		"another issuer":     sign(jwt.SigningMethodEdDSA, key, func(_ *jwt.Token, c *claims) { c.Issuer = "x" }),
		"another's session":  sign(jwt.SigningMethodEdDSA, key, func(_ *jwt.Token, c *claims) { c.Subject = "eve" }),
		"a missing session":  sign(jwt.SigningMethodEdDSA, key, func(_ *jwt.Token, c *claims) { c.Session = "x" }),
		"a refresh token":    tokens.Refresh,
		"a changed token":    tokens.Access[:len(tokens.Access)-4] + "AAAA",
		"nothing":            "",
		"an API token":       "mnt_" + strings.Repeat("0", 32) + "_" + strings.Repeat("A", 43),
		"a path":             "mnt_../../x_" + strings.Repeat("A", 43),
	} {
		_, err := w.Authenticate(w.ctx, token)
		require.ErrorIs(t, err, ErrToken, what)
	}
}

func TestKeysTurnAndOldTokensStayGoodUntilTheyExpire(t *testing.T) {
	w := newWorld(t)
	other := w.another()
	next, err := w.EnsureKeys(w.ctx)
	require.NoError(t, err)
	require.Equal(t, w.now.Add(30*24*time.Hour), next)
	w.pass(30*24*time.Hour - time.Minute)
	before := w.login()
	w.pass(time.Minute)
	next, err = w.EnsureKeys(w.ctx)
	require.NoError(t, err)
	require.Equal(t, w.now.Add(12*time.Minute), next, "when the old key goes")
	w.pass(keysFresh)
	after := w.login()
	require.NotEqual(t, kid(t, before.Access), kid(t, after.Access))
	for _, token := range []string{before.Access, after.Access} {
		_, err := other.Authenticate(w.ctx, token)
		require.NoError(t, err, "in a process that has not seen the new key")
	}
	w.pass(11 * time.Minute)
	_, err = w.EnsureKeys(w.ctx)
	require.NoError(t, err)
	secret := &corev1.Secret{}
	require.NoError(t, w.Get(w.ctx, client.ObjectKey{Namespace: authv1.SystemNamespace, Name: keysName}, secret))
	require.Len(t, secret.Data, 1)

	// A key that somebody takes away ends its tokens, also those that were found good before.
	last := w.login()
	_, err = w.Authenticate(w.ctx, last.Access)
	require.NoError(t, err)
	require.NoError(t, w.Delete(w.ctx, secret))
	w.pass(keysFresh)
	_, err = w.EnsureKeys(w.ctx)
	require.NoError(t, err)
	w.refused(last.Access)
}

func kid(t *testing.T, token string) string {
	t.Helper()
	parsed, _, err := jwt.NewParser().ParseUnverified(token, &claims{})
	require.NoError(t, err)
	return parsed.Header["kid"].(string)
}

func TestAPasswordIsChangedByWhoKnowsIt(t *testing.T) {
	w := newWorld(t)
	require.ErrorIs(t, w.ChangePassword(w.ctx, "ada", "wrong password", "another one"), ErrLogin)
	require.ErrorContains(t, w.ChangePassword(w.ctx, "ada", right, right), "choose another")
	require.ErrorContains(t, w.ChangePassword(w.ctx, "ada", right, nobodys()), "is a bcrypt hash")
	require.NoError(t, w.ChangePassword(w.ctx, "ada", right, "another one"))
	require.Equal(t, "another one", w.stored("ada").Spec.Password, "the API server hashes it")
}

func TestOfManyWhoChangeAPasswordAtOnceOneDoes(t *testing.T) {
	w := newWorld(t)
	var group sync.WaitGroup
	errs := make([]error, 6)
	for i := range errs {
		group.Go(func() { errs[i] = w.another().ChangePassword(w.ctx, "ada", right, fmt.Sprint("another one ", i)) })
	}
	group.Wait()
	changed := slices.Index(errs, nil)
	require.GreaterOrEqual(t, changed, 0, "%v", errs)
	require.Equal(t, fmt.Sprint("another one ", changed), w.stored("ada").Spec.Password)
	for i, err := range errs {
		if i != changed {
			require.ErrorIs(t, err, ErrLogin, "%d was told that its password is the User's", i)
		}
	}
}
