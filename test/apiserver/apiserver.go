// Package apiserver starts a real API server (etcd and kube-apiserver of the embedded Kubernetes) for tests, with the CRDs
// of the cloud installed. No controllers, scheduler or nodes run; a test starts what it is about.
package apiserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// crdDirs are the folders of CRDs, from the repository's root.
var crdDirs = []string{"network/config/crd", "services/auth/config/crd", "services/vpc/config/crd", "services/ctr/config/crd"}

// Root is the repository's root folder: the nearest one above the working directory, which is the test's package, with a go.mod.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	panic("no go.mod above the working directory")
}

// Start runs an API server until the test ends and returns a configuration with every right. It fails the test when the
// embedded Kubernetes has not been built (make build).
func Start(t testing.TB) *rest.Config {
	t.Helper()
	env, err := start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	return env.Config
}

// shared is the API server of a package whose TestMain calls Main.
var shared struct {
	once   sync.Once
	assets string
	env    *envtest.Environment
	err    error
}

// Shared returns the configuration of the API server that all tests of the package share; the first caller starts it. The
// package's TestMain must call Main, which stops it.
func Shared(t testing.TB) *rest.Config {
	t.Helper()
	return rest.CopyConfig(sharedEnvironment(t).Config)
}

// SharedEtcd is the URL of the etcd of the shared API server: it takes many objects in much less time than the API server does.
func SharedEtcd(t testing.TB) string {
	t.Helper()
	return sharedEnvironment(t).ControlPlane.Etcd.URL.String()
}

func sharedEnvironment(t testing.TB) *envtest.Environment {
	t.Helper()
	shared.once.Do(func() {
		if shared.assets, shared.err = os.MkdirTemp("", "apiserver"); shared.err == nil { //nolint:usetesting // it outlives the first test
			shared.env, shared.err = start(shared.assets)
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.env
}

// Main is for TestMain: it runs the package's tests, stops the API server they shared if any of them used it, and returns
// the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	var err error
	if shared.env != nil {
		err = shared.env.Stop()
	}
	if shared.assets != "" {
		err = errors.Join(err, os.RemoveAll(shared.assets))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		return 1
	}
	return code
}

// start runs an API server whose binaries are linked into the folder assets.
func start(assets string) (*envtest.Environment, error) {
	env, err := environment(assets)
	if err != nil {
		return nil, err
	}
	if _, err := env.Start(); err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	return env, nil
}

// environment is an API server that is not started yet.
func environment(assets string) (*envtest.Environment, error) {
	kube := filepath.Join(Root(), "bin", "mni-kube")
	if _, err := os.Stat(kube); err != nil {
		return nil, fmt.Errorf("the embedded Kubernetes is not built, run `make build` first: %w", err)
	}
	kube, err := filepath.EvalSymlinks(kube)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Symlink(kube, filepath.Join(assets, name)); err != nil {
			return nil, err
		}
	}
	// A machine busy with builds may take long; a healthy one takes seconds.
	const patience = 3 * time.Minute
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets, ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: patience, ControlPlaneStopTimeout: patience,
	}
	for _, dir := range crdDirs {
		env.CRDDirectoryPaths = append(env.CRDDirectoryPaths, filepath.Join(Root(), dir))
	}
	return env, nil
}
