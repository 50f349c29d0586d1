package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// The API server of these tests has no webhook that hashes: a password must be a hash already.
const someHash = "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"

func (c *cloud) testTenants(t *testing.T) {
	t.Run("a tenant is made, with owners and limits, and its members change", func(t *testing.T) {
		require.Equal(t, "tenant/crimson created\n", c.must(t, "tenant", "create", "crimson", "--wait=false", "--owner", "ada,bob", "--display-name", "Red Ltd.", "--quota", "cpu=8,vpcs=3"))
		red := c.tenantNamed(t, "crimson")
		require.Equal(t, []auth.Member{{User: "ada", Role: auth.RoleOwner}, {User: "bob", Role: auth.RoleOwner}}, red.Spec.Members)
		require.Equal(t, "Red Ltd.", red.Spec.DisplayName)
		require.Equal(t, "8", red.Spec.Quota.CPU.String())
		require.EqualValues(t, 3, *red.Spec.Quota.VPCs)

		require.Equal(t, "eve is viewer of crimson now\n", c.must(t, "tenant", "add", "crimson", "eve", "--role", "viewer"))
		require.Equal(t, "bob is admin of crimson now, and was owner\n", c.must(t, "tenant", "add", "crimson", "bob", "--role", "admin"))
		require.Equal(t, "ada is no member of crimson any more\n", c.must(t, "tenant", "remove", "crimson", "ada"))
		require.Equal(t, []auth.Member{{User: "bob", Role: auth.RoleAdmin}, {User: "eve", Role: auth.RoleViewer}}, c.tenantNamed(t, "crimson").Spec.Members)
		require.Contains(t, c.must(t, "tenant", "ls"), "crimson")
	})
	t.Run("who adds a member that is no User is told", func(t *testing.T) {
		c.must(t, "tenant", "create", "ochre", "--wait=false")
		status := `{"status":{"observedGeneration":1000,"members":[{"user":"nobody","state":"Missing"}]}}` // as the Auth Controller says it
		require.NoError(t, c.client.Status().Patch(t.Context(), c.tenantNamed(t, "ochre"), client.RawPatch("application/merge-patch+json", []byte(status))))
		o := c.mni(t, "tenant", "add", "ochre", "nobody")
		require.Equal(t, "nobody is member of ochre now\n", o.stdout)
		require.Contains(t, o.stderr, "there is no User nobody yet")
		require.Zero(t, o.code)
		require.Equal(t, output{stdout: "ada is member of ochre now\n"}, c.mni(t, "tenant", "add", "ochre", "ada"))
	})
	t.Run("a User is made, gets another password, is locked out", func(t *testing.T) {
		o := c.mniWithInput(t, someHash+"\n", "user", "create", "ada", "--display-name", "Ada", "--password-stdin")
		require.Equal(t, output{stdout: "user/ada created\n"}, o)
		ada := c.userNamed(t, "ada")
		require.Equal(t, auth.UserSpec{DisplayName: "Ada", Password: someHash, MustChangePassword: true}, ada.Spec)
		other := strings.ToUpper(someHash[:8]) + someHash[8:]
		other = strings.Replace(other, "$2A$", "$2a$", 1)
		o = c.mniWithInput(t, other, "user", "reset-password", "ada", "--password-stdin", "--keep")
		require.Equal(t, output{stdout: "user/ada has another password\n"}, o)
		require.False(t, c.userNamed(t, "ada").Spec.MustChangePassword)
		require.Equal(t, "user/ada disabled\n", c.must(t, "user", "disable", "ada"))
		require.True(t, c.userNamed(t, "ada").Spec.Disabled)
		require.Equal(t, "user/ada enabled\n", c.must(t, "user", "enable", "ada"))
		require.False(t, c.userNamed(t, "ada").Spec.Disabled)
		require.Contains(t, c.must(t, "user", "list"), "Ada")
	})
	t.Run("a password that nobody hashed is not stored, and not repeated", func(t *testing.T) {
		o := c.mni(t, "user", "create", "bob", "--generate")
		require.Equal(t, ExitFailure, o.code)
		require.Empty(t, o.stdout)
		require.Contains(t, o.stderr, "was not hashed")
	})
	for name, bad := range map[string]struct {
		args []string
		says string
		code int
	}{
		"no such limit":           {[]string{"tenant", "create", "x", "--quota", "disks=3"}, "--quota disks: there is no such limit: cpu,", ExitUsage},
		"no quantity":             {[]string{"tenant", "create", "x", "--quota", "cpu=many"}, "--quota cpu=many: it must be a quantity", ExitUsage},
		"half a Vpc":              {[]string{"tenant", "create", "x", "--quota", "vpcs=500m"}, "--quota vpcs=500m: it must be a whole number", ExitUsage},
		"no such role":            {[]string{"tenant", "add", "crimson", "ada", "--role", "king"}, "--role king: there is no such role: owner, admin, member, viewer", ExitUsage},
		"no member":               {[]string{"tenant", "remove", "crimson", "nobody"}, "nobody is no member of tenant crimson", ExitFailure},
		"no tenant":               {[]string{"tenant", "add", "none", "ada"}, "not found", ExitFailure},
		"no name":                 {[]string{"user", "create"}, "give the User one name", ExitUsage},
		"no password":             {[]string{"user", "create", "x"}, "--password-stdin", ExitUsage},
		"two ways of passwords":   {[]string{"user", "create", "x", "--generate", "--password-stdin"}, "give one of them", ExitUsage},
		"a tenant, not logged in": {[]string{"tenant", "use", "crimson"}, "mni login", ExitFailure},
		"an unknown command":      {[]string{"tenant", "crown", "x"}, "ls, use, create, add or remove", ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.mni(t, bad.args...)
			require.Equal(t, bad.code, o.code, o.stderr)
			require.Contains(t, o.stderr, bad.says)
		})
	}
}

func (c *cloud) tenantNamed(t *testing.T, name string) *auth.Tenant {
	t.Helper()
	var o auth.Tenant
	require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Name: name}, &o))
	return &o
}

func (c *cloud) userNamed(t *testing.T, name string) *auth.User {
	t.Helper()
	var o auth.User
	require.NoError(t, c.client.Get(t.Context(), client.ObjectKey{Name: name}, &o))
	return &o
}
