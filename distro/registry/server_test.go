package registry_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/registry"
)

// running is a registry on loopback over TLS, on a state directory that outlives it.
type running struct {
	t        *testing.T
	state    registry.State
	log      *bytes.Buffer
	client   registry.Client
	stop     func()
	endpoint registry.Endpoint
}

// start serves the registry of state; the test's end stops it.
func start(t *testing.T, state registry.State) *running {
	t.Helper()
	require.NoError(t, os.MkdirAll(state.Dir, 0o700))
	certFile, keyFile := writeCertificate(t, state.Dir)
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, state: state, log: &bytes.Buffer{}}
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- registry.Serve(ctx, registry.Config{
			Address: "127.0.0.1:0", DataDir: state.DataDir(), CertFile: certFile, KeyFile: keyFile,
			HTPasswdFile: state.HTPasswdFile(), Listening: func(a net.Addr) { listening <- a },
			Log: slog.New(slog.NewTextHandler(r.log, nil)),
		})
	}()
	select {
	case address := <-listening:
		r.endpoint = registry.Endpoint{Address: address.String(), CAFile: certFile}
	case err := <-ended:
		require.NoError(t, err)
	}
	client, err := state.Client(r.endpoint)
	require.NoError(t, err)
	r.client = client
	stopped := false
	r.stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(t, <-ended)
		}
	}
	t.Cleanup(r.stop)
	return r
}

// options of go-containerregistry for a user; "" is nobody.
func (r *running) options(user, password string) []remote.Option {
	transport, err := r.client.Transport()
	require.NoError(r.t, err)
	r.t.Cleanup(transport.CloseIdleConnections)
	options := []remote.Option{remote.WithTransport(transport)}
	if user != "" {
		options = append(options, remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	}
	return options
}

func (r *running) ref(image string) name.Reference {
	ref, err := name.ParseReference(r.client.Address + "/" + image)
	require.NoError(r.t, err)
	return ref
}

// request sends one request by hand and returns the status.
func (r *running) request(method, path, user, password string) int {
	transport, err := r.client.Transport()
	require.NoError(r.t, err)
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(r.t.Context(), method, "https://"+r.endpoint.Address+path, nil)
	require.NoError(r.t, err)
	if user != "" {
		request.SetBasicAuth(user, password)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(r.t, err)
	require.NoError(r.t, answer.Body.Close())
	return answer.StatusCode
}

func (r *running) push(image string, content v1.Image) {
	require.NoError(r.t, remote.Write(r.ref(image), content, r.options(registry.MachineUser, r.client.Password)...))
}

// pullable fails unless the image is there, every blob with the right digest, and equal to want.
func (r *running) pullable(image string, want v1.Image) {
	got, err := remote.Image(r.ref(image), r.options(registry.MachineUser, r.client.Password)...)
	require.NoError(r.t, err)
	require.NoError(r.t, validate.Image(got))
	wantDigest, err := want.Digest()
	require.NoError(r.t, err)
	gotDigest, err := got.Digest()
	require.NoError(r.t, err)
	require.Equal(r.t, wantDigest, gotDigest)
}

func randomImage(t *testing.T) v1.Image {
	image, err := random.Image(1000, 3)
	require.NoError(t, err)
	return image
}

// writeCertificate makes a self-signed certificate for loopback.
func writeCertificate(t *testing.T, dir string) (certFile, keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "registry"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	writePEM(t, keyFile, "PRIVATE KEY", keyDER)
	writePEM(t, certFile, "CERTIFICATE", der)
	return certFile, keyFile
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

func TestImagesSurviveARestart(t *testing.T) {
	state := registry.State{Dir: t.TempDir()}
	image := randomImage(t)
	first := start(t, state)
	first.push("team/app:v1", image)
	first.pullable("team/app:v1", image)
	first.stop()

	second := start(t, state)
	second.pullable("team/app:v1", image)
}

func TestHealthNeedsNoCredentialsAndSaysWhenTheDataIsGone(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	require.NoError(t, r.state.AddUser("alice", "correct horse"))
	nobody := registry.Client{Endpoint: r.endpoint}
	require.NoError(t, nobody.Healthy(t.Context()))

	require.NoError(t, os.RemoveAll(r.state.DataDir()))
	require.ErrorContains(t, nobody.Healthy(t.Context()), "data directory")
}

func TestOrdinaryRequestsLogNothing(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	r.push("app:v1", randomImage(t)) // looks up what is not there, which answers 404
	_, err := remote.Image(r.ref("app:none"), r.options("", "")...)
	require.Error(t, err)
	r.stop()
	require.Empty(t, r.log.String())
}

func TestARenewedCertificateIsServedWithoutARestart(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	serial := func() *big.Int {
		transport, err := registry.Client{Endpoint: r.endpoint}.Transport()
		require.NoError(t, err)
		defer transport.CloseIdleConnections()
		answer, err := (&http.Client{Transport: transport}).Get(r.client.URL(registry.HealthPath))
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.TLS.PeerCertificates[0].SerialNumber
	}
	before := serial()
	writeCertificate(t, r.state.Dir)
	require.NotEqual(t, before, serial())
}

func TestAnAddressInUseIsAClearError(t *testing.T) {
	r := start(t, registry.State{Dir: t.TempDir()})
	err := registry.Serve(t.Context(), registry.Config{Address: r.client.Address, DataDir: t.TempDir()})
	require.ErrorContains(t, err, "address already in use")
}
