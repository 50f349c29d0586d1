//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cloud"
	machine "github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/leftovers"
	"github.com/mnicloud/mnicloud/distro/supervisor"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
)

// parts are the cloud's parts, by name, as `mni status` says them; an error while one is not ready. A node may be lost.
func parts(ctx context.Context) (map[string]supervisor.PartStatus, error) {
	out, err := mni(ctx, "status", "-o", "json")
	var status supervisor.Status
	if parseErr := json.NewDecoder(strings.NewReader(out)).Decode(&status); parseErr != nil {
		return nil, fmt.Errorf("mni status -o json: %w: %s", errors.Join(err, parseErr), out)
	}
	if !status.Ready() {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	byName := map[string]supervisor.PartStatus{}
	for _, part := range status.Parts {
		byName[part.Name] = part
	}
	return byName, nil
}

func mustParts(t *testing.T) map[string]supervisor.PartStatus {
	t.Helper()
	var found map[string]supervisor.PartStatus
	eventually(t, "every part is ready", func(ctx context.Context) (err error) {
		found, err = parts(ctx)
		return err
	})
	return found
}

// guards are the PIDs of the instance's supervisor or of the keeper that watches it.
func guards(role string) []int {
	var pids []int
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		args := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
		if slices.Contains(args, "--instance="+instance) && args[len(args)-1] == role {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// witness is a tenant's server and a shell that together show that a cloud works.
type witness struct{ server, shell *ctrv1.Container }

func newWitness(t *testing.T, namespace string) witness {
	t.Helper()
	vpcWithSubnets(t, tenant(t, namespace))
	w := witness{whoami(namespace, namespace+"-web", "a", nodes[1]), shell(namespace, namespace+"-shell", "b", nodes[0])}
	create(t, w.server, w.shell)
	ready(t, w.server, w.shell)
	w.works(t)
	return w
}

func (w witness) works(t *testing.T) {
	t.Helper()
	eventually(t, "the containers answer", func(ctx context.Context) error { return checkIdentity(ctx, w.shell, w.server) })
}

func TestASecondUpChangesNothing(t *testing.T) {
	before := mustParts(t)
	mustMni(t, "up", "--nodes", "2")
	for name, part := range mustParts(t) {
		if part.PID != before[name].PID {
			t.Errorf("%s was restarted", name)
		}
	}
}

func TestWhatDiesIsStartedAgain(t *testing.T) {
	w := newWitness(t, "dies")
	for _, name := range []string{"apiserver", "mni-cloud", "node-1/mni-netd", "node-1/kubelet", "node-1/containerd", "etcd"} {
		before := mustParts(t)[name]
		if err := unix.Kill(before.PID, unix.SIGKILL); err != nil {
			t.Fatalf("kill %s (%d): %v", name, before.PID, err)
		}
		eventually(t, name+" runs again", func(ctx context.Context) error {
			now, err := parts(ctx)
			if err != nil {
				return err
			}
			if part := now[name]; part.PID == before.PID || part.State != supervisor.Ready || part.Restarts <= before.Restarts {
				return fmt.Errorf("%+v", part)
			}
			return nil
		})
		w.works(t)
	}
}

func TestADeadSupervisorIsReplacedAndNothingRestarts(t *testing.T) {
	for _, role := range []string{"supervisor", "keeper"} {
		before := mustParts(t)
		dead := guards(role)
		if len(dead) != 1 {
			t.Fatalf("%d processes are the %s, want 1", len(dead), role)
		}
		if err := unix.Kill(dead[0], unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another "+role+" runs", func(context.Context) error {
			if now := guards(role); len(now) != 1 || now[0] == dead[0] {
				return fmt.Errorf("%v", now)
			}
			return nil
		})
		for name, part := range mustParts(t) {
			if part.PID != before[name].PID {
				t.Errorf("%s died: %s was restarted", role, name)
			}
		}
	}
}

func TestDownLeavesNothingAndUpKeepsTheState(t *testing.T) {
	w := newWitness(t, "state")
	address := w.server.Status.Address
	found, ok, err := cloud.Registry().Find(instance)
	if err != nil || !ok {
		t.Fatalf("instance %s: %v", instance, err)
	}
	if left, err := leftovers.Find(t.Context(), found); err != nil || len(left) == 0 {
		t.Fatalf("the checker sees nothing of a running cloud: %v", err)
	}
	mustMni(t, "down")
	left, err := leftovers.Find(t.Context(), found)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		t.Errorf("left behind: %s", l)
	}
	if lock := filepath.Join(machine.RunRoot, instance+".lock"); !errors.Is(stat(lock), fs.ErrNotExist) {
		t.Errorf("left behind: %s", lock)
	}
	mustMni(t, "up", "--nodes", "2")
	ready(t, w.server, w.shell)
	w.works(t)
	if w.server.Status.Address != address {
		t.Errorf("the address was %s and is %s", address, w.server.Status.Address)
	}
}

func stat(path string) error {
	_, err := os.Stat(path)
	return err
}

func TestAPowerCutIsFollowedByAWorkingCloud(t *testing.T) {
	w := newWitness(t, "power")
	found, ok, err := cloud.Registry().Find(instance)
	if err != nil || !ok {
		t.Fatalf("instance %s: %v", instance, err)
	}
	// Guards first, so that nothing is started again in between; then everything until nothing lives.
	for _, role := range []string{"keeper", "supervisor"} {
		for _, pid := range guards(role) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	eventually(t, "everything is dead", func(context.Context) error {
		pids, err := leftovers.Processes(found)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		return fmt.Errorf("%d processes live", len(pids))
	})
	mustMni(t, "up", "--nodes", "2")
	ready(t, w.server, w.shell)
	w.works(t)
	isConsistent(t)
}
