// Package apiserver starts a real API server (etcd and kube-apiserver of the embedded Kubernetes) for tests, with the CRDs
// of the cloud installed. No controllers, scheduler or nodes run; a test starts what it is about.
package apiserver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// crdDirs are the folders of CRDs, from the repository's root.
var crdDirs = []string{"network/config/crd", "services/vpc/config/crd", "services/ctr/config/crd"}

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
	config, stop, err := start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	return config
}

// Main is for TestMain: it runs the package's tests with one API server for all of them, whose configuration it hands to
// use first, and returns the exit code.
func Main(m *testing.M, use func(*rest.Config)) (code int) {
	assets, err := os.MkdirTemp("", "apiserver")
	if err != nil {
		return failed(err)
	}
	defer func() {
		if err := os.RemoveAll(assets); err != nil {
			code = failed(err)
		}
	}()
	config, stop, err := start(assets)
	if err != nil {
		return failed(err)
	}
	use(config)
	code = m.Run()
	if err := stop(); err != nil {
		return failed(fmt.Errorf("stop the API server: %w", err))
	}
	return code
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// start runs an API server whose binaries are linked into the folder assets.
func start(assets string) (*rest.Config, func() error, error) {
	kube := filepath.Join(Root(), "bin", "mni-kube")
	if _, err := os.Stat(kube); err != nil {
		return nil, nil, fmt.Errorf("the embedded Kubernetes is not built, run `make build` first: %w", err)
	}
	kube, err := filepath.EvalSymlinks(kube)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Symlink(kube, filepath.Join(assets, name)); err != nil {
			return nil, nil, err
		}
	}
	env := &envtest.Environment{BinaryAssetsDirectory: assets, ErrorIfCRDPathMissing: true}
	for _, dir := range crdDirs {
		env.CRDDirectoryPaths = append(env.CRDDirectoryPaths, filepath.Join(Root(), dir))
	}
	config, err := env.Start()
	if err != nil {
		return nil, nil, fmt.Errorf("start the API server: %w", err)
	}
	return config, env.Stop, nil
}
