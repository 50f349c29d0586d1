package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// Options are what a Server has beside the API server itself.
type Options struct {
	// AuditPolicy is the content of the audit policy's file.
	AuditPolicy string
	// Controllers are those of kube-controller-manager that run: namespace-controller, resourcequota-controller.
	Controllers []string
}

// Server is an API server with what a test wants to see of it.
type Server struct {
	// Config has every right.
	Config *rest.Config
	// AuditLog is the path of the audit log, EtcdDir of etcd's data.
	AuditLog, EtcdDir string
	// Kubeconfig is the path of a kubeconfig with every right, Kubectl of the program.
	Kubeconfig, Kubectl string
}

// StartWhole runs an API server with an audit log and Kubernetes' own controllers until stop is called.
func StartWhole(o Options) (server Server, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "apiserver")
	if err != nil {
		return server, nil, err
	}
	server = Server{
		AuditLog: filepath.Join(dir, "audit.log"), EtcdDir: filepath.Join(dir, "etcd-data"),
		Kubeconfig: filepath.Join(dir, "kubeconfig"), Kubectl: filepath.Join(dir, "kubectl"),
	}
	var stops []func() error
	stop = func() error {
		var first error
		for i := len(stops) - 1; i >= 0; i-- {
			if err := stops[i](); err != nil && first == nil {
				first = err
			}
		}
		if err := os.RemoveAll(dir); err != nil && first == nil {
			first = err
		}
		return first
	}
	fail := func(err error) (Server, func() error, error) {
		_ = stop()
		return server, nil, err
	}
	env, err := environment(dir)
	if err != nil {
		return fail(err)
	}
	policy := filepath.Join(dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(o.AuditPolicy), 0o600); err != nil {
		return fail(err)
	}
	if err := os.Mkdir(server.EtcdDir, 0o700); err != nil {
		return fail(err)
	}
	env.ControlPlane.Etcd = &envtest.Etcd{DataDir: server.EtcdDir}
	env.ControlPlane.GetAPIServer().Configure().Set("audit-policy-file", policy).Set("audit-log-path", server.AuditLog)
	if server.Config, err = env.Start(); err != nil {
		return fail(fmt.Errorf("start the API server: %w", err))
	}
	stops = append(stops, env.Stop)
	if err := os.WriteFile(server.Kubeconfig, env.KubeConfig, 0o600); err != nil {
		return fail(err)
	}
	if len(o.Controllers) > 0 {
		end, err := server.controllers(filepath.Join(dir, "kubectl"), o.Controllers)
		if err != nil {
			return fail(err)
		}
		stops = append(stops, end)
	}
	return server, stop, nil
}

// controllers runs kube-controller-manager of the same program as kubectl.
func (s Server) controllers(kubectl string, names []string) (stop func() error, err error) {
	kube, err := filepath.EvalSymlinks(kubectl)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, kube, "kube-controller-manager", "--kubeconfig="+s.Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers="+strings.Join(names, ","), "--concurrent-namespace-syncs=10", "--resource-quota-sync-period=5s")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	return func() error {
		cancel()
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("kube-controller-manager ended by itself: %w\n%s", err, output.String())
		}
		return nil
	}, nil
}

// MainWhole is Main for packages that share a Server with these options: use gets it before the first test runs.
func MainWhole(m *testing.M, o Options, use func(Server)) int {
	server, stop, err := StartWhole(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	use(server)
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the API server:", err)
		return 1
	}
	return code
}
