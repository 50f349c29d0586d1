// Package apiserver starts a real API server (etcd and kube-apiserver of the embedded Kubernetes) for tests, with the CRDs
// of the cloud installed. No controllers, scheduler or nodes run; a test starts what it is about.
package apiserver

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// crdDirs are the folders of CRDs, from the repository's root.
var crdDirs = []string{"network/config/crd", "services/vpc/config/crd", "services/ctr/config/crd"}

// Root is the repository's root folder.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Start runs an API server until the test ends and returns a configuration with every right. It fails the test when the
// embedded Kubernetes has not been built (make build).
func Start(t testing.TB) *rest.Config {
	t.Helper()
	assets := t.TempDir()
	kube := filepath.Join(Root(), "bin", "mni-kube")
	if _, err := os.Stat(kube); err != nil {
		t.Fatalf("the embedded Kubernetes is not built, run `make build` first: %v", err)
	}
	kube, err := filepath.EvalSymlinks(kube)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		if err := os.Symlink(kube, filepath.Join(assets, name)); err != nil {
			t.Fatal(err)
		}
	}
	env := &envtest.Environment{BinaryAssetsDirectory: assets, ErrorIfCRDPathMissing: true}
	for _, dir := range crdDirs {
		env.CRDDirectoryPaths = append(env.CRDDirectoryPaths, filepath.Join(Root(), dir))
	}
	config, err := env.Start()
	if err != nil {
		t.Fatalf("start the API server: %v", err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stop the API server: %v", err)
		}
	})
	return config
}
