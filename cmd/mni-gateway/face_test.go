package main

import (
	"crypto/tls"
	"crypto/x509"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/test/apiserver"
)

func TestASecondAddressHasACertificateOfItsOwnThatIsReadAgain(t *testing.T) {
	cert, key, first := certificate(t)
	givenCert, givenKey, given := certificate(t)
	renewedCert, renewedKey, renewed := certificate(t)
	o := &options{address: "127.0.0.1:0", cert: cert, key: key, public: public{"127.0.0.1:0", givenCert, givenKey}}
	faces, err := o.faces()
	require.NoError(t, err)
	require.Len(t, faces, 2)
	w := furnished(t)
	w.serve(w.rights(apiserver.Shared(t)), faces...)
	trusts := func(f face, config *tls.Config) bool {
		c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", f.listener.Addr().String())
		if err == nil {
			require.NoError(t, c.Close())
		}
		return err == nil
	}
	by := func(pool int) *tls.Config {
		return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: []*x509.CertPool{first, given, renewed}[pool]}
	}
	for face, want := range [][]bool{{true, false, false}, {false, true, false}} {
		for pool, trusted := range want {
			require.Equal(t, trusted, trusts(faces[face], by(pool)), "face %d, certificate %d", face, pool)
		}
	}
	writeFile(t, givenKey, readFile(t, renewedKey))
	writeFile(t, givenCert, readFile(t, renewedCert))
	w.eventually("the renewed certificate is served", func() bool { return trusts(faces[1], by(2)) })
	require.True(t, trusts(faces[0], by(0)))

	none := filepath.Join(t.TempDir(), "none")
	for want, bad := range map[string]*options{
		"--cert and --key":               {address: "127.0.0.1:0", cert: none, key: none},
		"--address":                      {address: "nowhere:x", cert: cert, key: key},
		"--public-cert and --public-key": {address: "127.0.0.1:0", cert: cert, key: key, public: public{"127.0.0.1:0", none, none}},
		"--public-address":               {address: "127.0.0.1:0", cert: cert, key: key, public: public{address: "nowhere:x"}},
	} {
		_, err := bad.faces()
		require.ErrorContains(t, err, want)
	}
	both := &options{address: "127.0.0.1:0", cert: cert, key: key, public: public{address: "127.0.0.1:0"}}
	faces, err = both.faces()
	require.NoError(t, err)
	require.Same(t, faces[0].certificate, faces[1].certificate)
	for _, f := range faces {
		require.NoError(t, f.listener.Close())
	}
}
