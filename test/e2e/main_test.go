//go:build e2e

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/apiserver"
)

// instance is the cloud of these tests: e2e, or MNI_E2E_INSTANCE, so that two checkouts can be tested on one machine.
var instance = cmp.Or(os.Getenv("MNI_E2E_INSTANCE"), "e2e")

const (
	// registryName is the cloud's registry as Pods name it.
	registryName = "registry.mni.internal"
	// patience is how long a condition that should come about within seconds is waited for on a loaded machine.
	patience = 2 * time.Minute
)

var (
	binaries = filepath.Join(apiserver.Root(), "bin")
	// kube is a client with every right on the cloud.
	kube       client.Client
	kubeConfig *rest.Config
)

func kubeconfigPath() string { return filepath.Join("/var/lib/mni", instance, "admin.kubeconfig") }

// TestMain starts the cloud, runs the tests and resets the cloud.
func TestMain(m *testing.M) {
	ctx := context.Background()
	if out, err := mni(ctx, "reset", "--yes"); err != nil { // what an interrupted run left
		log.Fatalf("reset before the tests: %v\n%s", err, out)
	}
	start := time.Now()
	if out, err := mni(ctx, "up", "--nodes", "2"); err != nil {
		log.Fatalf("mni up: %v\n%s", err, out)
	}
	log.Printf("mni up took %.1f s", time.Since(start).Seconds())
	if err := connect(); err != nil {
		log.Fatal(err)
	}
	if code := m.Run(); code != 0 {
		report(ctx)
	}
	if os.Getenv("MNI_E2E_KEEP") != "" {
		return
	}
	if out, err := mni(ctx, "reset", "--yes"); err != nil {
		log.Fatalf("reset after the tests: %v\n%s", err, out)
	}
}

// report prints what helps to understand a failed run, before the cloud is gone.
func report(ctx context.Context) {
	for _, args := range [][]string{
		{"get", "nodes", "-o", "wide"},
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "vpcs.vpc.mnicloud.jp,subnets.vpc.mnicloud.jp,containers.ctr.mnicloud.jp", "-A", "-o", "wide"},
		{"get", "networkinterfaces.net.mnicloud.jp"},
		{"get", "events", "-A", "--field-selector", "type=Warning"},
	} {
		out, _ := kubectl(ctx, args...)
		log.Printf("kubectl %s\n%s", strings.Join(args, " "), out)
	}
	out, _ := mni(ctx, "status")
	log.Printf("mni status\n%s", out)
}

// connect makes the clients of the cloud.
func connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfigPath())
	if err != nil {
		return fmt.Errorf("the owner's kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 100, 200
	scheme := clientgoscheme.Scheme
	for _, add := range []func() error{
		func() error { return netv1.AddToScheme(scheme) },
		func() error { return authv1.AddToScheme(scheme) },
		func() error { return vpcv1.AddToScheme(scheme) },
		func() error { return ctrv1.AddToScheme(scheme) },
	} {
		if err := add(); err != nil {
			return err
		}
	}
	kubeConfig = config
	kube, err = client.New(config, client.Options{Scheme: scheme})
	return err
}

// mni runs the mni command on the tests' instance and returns what it printed.
func mni(ctx context.Context, args ...string) (string, error) {
	return command(ctx, "", filepath.Join(binaries, "mni"), onInstance(args)...)
}

// mniInput is mni with standard input.
func mniInput(ctx context.Context, input string, args ...string) (string, error) {
	return command(ctx, input, filepath.Join(binaries, "mni"), onInstance(args)...)
}

func onInstance(args []string) []string {
	return append([]string{args[0], "--instance", instance}, args[1:]...)
}

// kubectl runs upstream kubectl as the owner.
func kubectl(ctx context.Context, args ...string) (string, error) {
	return command(ctx, "", filepath.Join(binaries, "mni-kube"), append([]string{"kubectl", "--kubeconfig", kubeconfigPath()}, args...)...)
}

func command(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if input != "" {
		cmd.Stdin = strings.NewReader(input)
	}
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", filepath.Base(name), strings.Join(args, " "), err)
	}
	return out.String(), err
}

// mustMni runs mni and fails the test when it fails.
func mustMni(t *testing.T, args ...string) string {
	t.Helper()
	out, err := mni(t.Context(), args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// eventually waits until check returns nil and fails the test with its last error when patience ends.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v; last: %v", what, err, last)
	}
}
