//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/mnicloud/mnicloud/test/apiserver"
)

// archive writes an image of the user's own, made from the cloud's busybox, as `docker save` would, and returns the file.
func archive(t *testing.T) string {
	t.Helper()
	path, err := layout.FromPath(filepath.Join(apiserver.Root(), "build", "images"))
	if err != nil {
		t.Fatal(err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var busybox v1.Image
	for i := range manifest.Manifests {
		if match.Name("mni/busybox:latest")(manifest.Manifests[i]) {
			if busybox, err = index.Image(manifest.Manifests[i].Digest); err != nil {
				t.Fatal(err)
			}
		}
	}
	if busybox == nil {
		t.Fatal("build/images has no mni/busybox:latest")
	}
	own, err := mutate.Config(busybox, v1.Config{Entrypoint: []string{"/bin/sh", "-c", "echo this is our own image; exec sleep 1000000"}, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("ours/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "app.tar")
	if err := tarball.WriteToFile(file, tag, own); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAnImageIsPushedPulledKeptAndRemoved(t *testing.T) {
	namespace := tenant(t, "images")
	vpcWithSubnets(t, namespace)
	mustMni(t, "image", "push", archive(t), "ours/app:v1")
	if out := mustMni(t, "image", "ls"); !strings.Contains(out, "ours/app") {
		t.Errorf("mni image ls does not list it:\n%s", out)
	}
	app := shell(namespace, "app", "a", "")
	app.Spec.Image, app.Spec.Command = registryName+"/ours/app:v1", nil
	create(t, app)
	ready(t, app)
	eventually(t, "its logs say what it is", func(ctx context.Context) error {
		return answers("this is our own image")(mni(ctx, "logs", app.Name, "-n", namespace))
	})

	registry := mustParts(t)["registry"]
	mustMni(t, "down")
	mustMni(t, "up", "--nodes", "2")
	if out := mustMni(t, "image", "ls"); !strings.Contains(out, "ours/app") {
		t.Errorf("it did not survive down and up (registry %d):\n%s", registry.PID, out)
	}
	mustMni(t, "image", "rm", "ours/app:v1")
	if out := mustMni(t, "image", "ls"); strings.Contains(out, "ours/app") {
		t.Errorf("mni image rm left it:\n%s", out)
	}
}

func TestTheRegistryRefusesWithoutCredentialsWhenAuthenticationIsOn(t *testing.T) {
	mustMni(t, "registry", "user", "add", "alice")
	t.Cleanup(func() {
		if out, err := mni(context.Background(), "registry", "open"); err != nil {
			t.Errorf("open the registry again: %v: %s", err, out)
		}
	})
	file := archive(t)
	eventually(t, "a wrong password is refused", func(ctx context.Context) error {
		out, err := mniInput(ctx, "wrong\n", "image", "push", file, "ours/secret:v1", "--username", "alice", "--password-stdin")
		if err == nil {
			return fmt.Errorf("it is not refused: %s", out)
		}
		if !strings.Contains(out, "credentials") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	if out := mustMni(t, "image", "push", file, "ours/secret:v1"); !strings.Contains(out, "sha256:") { // the owner's own credentials
		t.Errorf("the owner cannot push: %s", out)
	}
	mustMni(t, "image", "rm", "ours/secret:v1")
	// Nodes have credentials of their own: what is not on them yet is still pulled.
	namespace := tenant(t, "closed")
	vpcWithSubnets(t, namespace)
	sh := shell(namespace, "closed-shell", "a", "")
	sh.Spec.Image = registryName + "/mni/curl:latest"
	create(t, sh)
	ready(t, sh)
}
