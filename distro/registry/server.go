package registry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/distribution/distribution/v3/registry/handlers"
	"github.com/distribution/distribution/v3/registry/storage/driver/filesystem"
)

// Name is the registry's host name in image references (registry.mni.internal/mni/whoami). Nodes map it to the
// registry's real address in hosts.toml (see HostsTOML); it is in no DNS zone.
const Name = "registry.mni.internal"

// Port is the TCP port the embedded cloud's registry listens on.
const Port = 5000

// HealthPath answers 200 when the registry serves and its data directory is there, 503 otherwise; it needs no credentials.
const HealthPath = "/healthz"

// stopTimeout is how long a stopping registry waits for transfers under way.
const stopTimeout = 10 * time.Second

// Config of a registry server.
type Config struct {
	// Address is host:port to listen on.
	Address string
	// DataDir is where blobs and manifests are; it is made when missing.
	DataDir string
	// CertFile and KeyFile are the server's TLS certificate and key in PEM. Both empty means plain HTTP, which is for
	// tests on loopback. The files are read again when they change.
	CertFile, KeyFile string
	// HTPasswdFile turns authentication on as soon as it exists; empty means no authentication.
	HTPasswdFile string
	// Log is where the registry's few lines go; slog.Default() when nil.
	Log *slog.Logger
	// Listening is called with the real address once connections are accepted.
	Listening func(net.Addr)
}

// Serve runs the registry until ctx is done, then lets transfers under way finish for a few seconds. Everything it has
// acknowledged is on disk: it may be killed at any moment.
func Serve(ctx context.Context, cfg Config) error {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if err := os.MkdirAll(cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("registry: data directory: %w", err)
	}
	server, err := newServer(ctx, cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return fmt.Errorf("registry: cannot listen (is the address on this machine, and the port free?): %w", err)
	}
	if cfg.Listening != nil {
		cfg.Listening(listener.Addr())
	}
	done := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			done <- server.ServeTLS(listener, "", "")
		} else {
			done <- server.Serve(listener)
		}
	}()
	select {
	case err := <-done:
		return fmt.Errorf("registry: %w", err)
	case <-ctx.Done():
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := server.Shutdown(stopCtx); err != nil {
		_ = server.Close()
		return fmt.Errorf("registry: transfers were cut off while stopping: %w", err)
	}
	return nil
}

// newServer makes the HTTP server with everything but the listener.
func newServer(ctx context.Context, cfg Config) (*http.Server, error) {
	routeLibraryLogs(cfg.Log)
	store, err := newStore(ctx, cfg)
	if err != nil {
		return nil, err
	}
	go store.maintain(ctx)
	server := &http.Server{
		Handler:           store.handler(),
		ReadHeaderTimeout: 30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		// TLS handshakes that clients break off are no news.
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug),
	}
	if cfg.CertFile == "" && cfg.KeyFile == "" {
		return server, nil
	}
	certificate := &reloadingCertificate{certFile: cfg.CertFile, keyFile: cfg.KeyFile}
	if _, err := certificate.get(nil); err != nil {
		return nil, err
	}
	server.TLSConfig = certificate.config()
	return server, nil
}

// newApp makes distribution's HTTP application. It reports configuration mistakes by panicking.
func newApp(ctx context.Context, cfg Config) (app *handlers.App, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("registry: %v", r)
		}
	}()
	config := &configuration.Configuration{
		Storage: configuration.Storage{
			"filesystem": {"rootdirectory": cfg.DataDir},
			"delete":     {"enabled": true},
			"redirect":   {"disable": true},
			// maintain purges abandoned uploads, at set times.
			"maintenance": {"uploadpurging": map[any]any{"enabled": false}},
		},
		Catalog: configuration.Catalog{MaxEntries: 1000},
	}
	// Relative Location headers work whatever name or address the client used.
	config.HTTP.RelativeURLs = true
	config.HTTP.Secret = rand.Text()
	if cfg.HTPasswdFile != "" {
		config.Auth = configuration.Auth{accessControllerName: {"path": cfg.HTPasswdFile}}
	}
	return handlers.NewApp(ctx, config), nil
}

// newDriver opens the data directory as distribution's filesystem storage, the same that newApp uses.
func newDriver(dataDir string) (*filesystem.Driver, error) {
	driver, err := filesystem.FromParameters(map[string]any{"rootdirectory": dataDir})
	if err != nil {
		return nil, fmt.Errorf("registry: storage: %w", err)
	}
	return driver, nil
}

// health answers HealthPath.
func health(dataDir string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		info, err := os.Stat(dataDir)
		if err == nil && !info.IsDir() {
			err = errors.New("not a directory")
		}
		if err != nil {
			http.Error(w, "data directory: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}
}
