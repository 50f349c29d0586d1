package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type clock struct{ now time.Time }

func newStore(t *testing.T) (Store, *clock) {
	c := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	return Store{Dir: t.TempDir(), Now: func() time.Time { return c.now }}, c
}

func server(s Store) Request {
	return Request{
		Name: "web", Dir: s.Dir, Authority: Cluster, User: "web", Groups: []string{"servers"}, Server: true,
		Names: []string{"web.example"}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
	}
}

func leaf(t *testing.T, r Request) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(r.CertFile(), r.KeyFile())
	require.NoError(t, err)
	return pair.Leaf
}

func TestASecondStartKeepsEveryCertificate(t *testing.T) {
	s, c := newStore(t)
	written, err := s.Ensure([]Request{server(s)})
	require.NoError(t, err)
	require.Equal(t, []string{"ca", "etcd-ca", "front-proxy-ca", "web"}, written)
	c.now = c.now.Add(30 * 24 * time.Hour)
	written, err = s.Ensure([]Request{server(s)})
	require.NoError(t, err)
	require.Empty(t, written)
}

func TestACertificateIsGoodForWhatWasAskedAndNothingElse(t *testing.T) {
	s, c := newStore(t)
	r := server(s)
	_, err := s.Ensure([]Request{r})
	require.NoError(t, err)
	cert := leaf(t, r)
	roots := func(a Authority) *x509.CertPool {
		pem, err := os.ReadFile(s.CertFile(a))
		require.NoError(t, err)
		pool := x509.NewCertPool()
		require.True(t, pool.AppendCertsFromPEM(pem))
		return pool
	}
	verify := func(a Authority, name string, usage x509.ExtKeyUsage) error {
		_, err := cert.Verify(x509.VerifyOptions{Roots: roots(a), DNSName: name, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: c.now})
		return err
	}
	require.NoError(t, verify(Cluster, "web.example", x509.ExtKeyUsageServerAuth))
	require.NoError(t, verify(Cluster, "192.0.2.1", x509.ExtKeyUsageServerAuth))
	require.Error(t, verify(Cluster, "other.example", x509.ExtKeyUsageServerAuth))
	require.Error(t, verify(Cluster, "web.example", x509.ExtKeyUsageClientAuth))
	require.Error(t, verify(Etcd, "web.example", x509.ExtKeyUsageServerAuth), "the authorities are apart")
	info, err := os.Stat(r.KeyFile())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestAnOldCertificateIsRenewedAndTheAuthorityStays(t *testing.T) {
	s, c := newStore(t)
	r := server(s)
	_, err := s.Ensure([]Request{r})
	require.NoError(t, err)
	before := leaf(t, r)
	c.now = before.NotAfter.Add(-CertificateLife/3 + 24*time.Hour)
	written, err := s.Ensure([]Request{r})
	require.NoError(t, err)
	require.Equal(t, []string{"web"}, written)
	require.True(t, leaf(t, r).NotAfter.After(before.NotAfter))
}

func TestAnOldAuthorityTakesItsCertificatesWithIt(t *testing.T) {
	s, c := newStore(t)
	_, err := s.Ensure([]Request{server(s)})
	require.NoError(t, err)
	c.now = c.now.Add(AuthorityLife - 24*time.Hour)
	written, err := s.Ensure([]Request{server(s)})
	require.NoError(t, err)
	require.Contains(t, written, "ca")
	require.Contains(t, written, "web")
}

func TestACertificateThatIsAskedForOtherwiseIsMadeAnew(t *testing.T) {
	s, _ := newStore(t)
	for name, change := range map[string]func(*Request){
		"another address":   func(r *Request) { r.Addresses = append(r.Addresses, netip.MustParseAddr("192.0.2.2")) },
		"another name":      func(r *Request) { r.Names = []string{"web2.example"} },
		"another user":      func(r *Request) { r.User = "web2" },
		"other groups":      func(r *Request) { r.Groups = nil },
		"another use":       func(r *Request) { r.Client = true },
		"another authority": func(r *Request) { r.Authority = Etcd },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Ensure([]Request{server(s)})
			require.NoError(t, err)
			r := server(s)
			change(&r)
			written, err := s.Ensure([]Request{r})
			require.NoError(t, err)
			require.Equal(t, []string{"web"}, written)
		})
	}
}

func TestAPairThatWasCutOffBetweenTwoWritesIsRepaired(t *testing.T) {
	s, _ := newStore(t)
	r := server(s)
	_, err := s.Ensure([]Request{r})
	require.NoError(t, err)
	other := server(s)
	other.Name = "other"
	_, err = s.Ensure([]Request{other})
	require.NoError(t, err)
	require.NoError(t, os.Rename(other.KeyFile(), r.KeyFile()), "the key of one with the certificate of the other")
	written, err := s.Ensure([]Request{r, other})
	require.NoError(t, err)
	require.Equal(t, []string{"web", "other"}, written)
	leaf(t, r)
}

func TestKeysThatCannotBeReplacedAreMadeOnce(t *testing.T) {
	s, _ := newStore(t)
	read := func() (out []string) {
		for _, file := range []string{s.ServiceAccountKeyFile(), s.ServiceAccountPublicFile(), s.EncryptionConfigFile()} {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			out = append(out, string(content))
		}
		return out
	}
	require.NoError(t, s.EnsureServiceAccountKey())
	require.NoError(t, s.EnsureEncryptionKey())
	before := read()
	require.NoError(t, s.EnsureServiceAccountKey())
	require.NoError(t, s.EnsureEncryptionKey())
	require.Equal(t, before, read())
}
