package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestANodeGetsAResolverThatItCanReach(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	stub := write("stub", "# systemd-resolved\nnameserver 127.0.0.53\noptions edns0\n")
	stub6 := write("stub6", "nameserver ::1\n")
	behind := write("behind", "nameserver 192.0.2.53\nsearch example\n")
	scoped := write("scoped", "nameserver fe80::1%eth0\n")
	mixed := write("mixed", "nameserver 192.0.2.53\nnameserver 127.0.0.1\n")
	empty := write("empty", "search example\n")
	missing := filepath.Join(dir, "missing")
	for name, c := range map[string]struct {
		files []string
		want  string
	}{
		"the machine's own":                        {[]string{behind, missing}, "nameserver 192.0.2.53\nsearch example\n"},
		"the one behind a loopback resolver":       {[]string{stub, behind}, "nameserver 192.0.2.53\nsearch example\n"},
		"none behind a loopback resolver":          {[]string{stub, missing}, ""},
		"an IPv6 loopback resolver":                {[]string{stub6, missing}, ""},
		"a link-local resolver":                    {[]string{scoped}, "nameserver fe80::1%eth0\n"},
		"one of two on loopback":                   {[]string{mixed, behind}, "nameserver 192.0.2.53\nsearch example\n"},
		"a file that names none, and no other one": {[]string{empty, missing}, ""},
		"no file at all":                           {[]string{missing}, ""},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, string(resolver(c.files...))) })
	}
}
