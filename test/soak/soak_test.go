//go:build e2e

package soak

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/test/cloud"
	"github.com/mnicloud/mnicloud/test/consistent"
	"github.com/mnicloud/mnicloud/test/fault"
)

const (
	// most is how many tenants there are at most.
	most = 4
	// nodes is how many nodes the cloud has.
	nodes = 2
	// goneWithin is how long deletion may take once everything is asked to go and every part runs.
	goneWithin = 30 * time.Second
	// patience is how long the cloud may take to be well again after a failure.
	patience = 3 * time.Minute
)

// soak is the state of a run.
type soak struct {
	cloud   cloud.Cloud
	random  *rand.Rand
	tenants map[string]cloud.Tenant
	deleted []string // their names
	made    int
}

func TestTheCloudStaysWellUnderChangeAndFailure(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		length = 5 * time.Minute
	}
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("SOAK_SEED"), 10, 64); err == nil {
		seed = given
	}
	t.Logf("SOAK=%s SOAK_SEED=%d", length, seed)
	s := &soak{
		cloud: cloud.Cloud{Instance: "soak"}, random: rand.New(rand.NewPCG(seed, 0)), tenants: map[string]cloud.Tenant{},
	}
	_, err = s.cloud.Mni(t.Context(), "reset", "--yes")
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := s.cloud.Mni(context.Background(), "reset", "--yes"); err != nil {
			t.Error(err)
		}
	})
	_, err = s.cloud.Mni(t.Context(), "up", "--nodes", strconv.Itoa(nodes))
	require.NoError(t, err)

	steps := map[string]func(context.Context) (string, error){
		"make a tenant": s.makeTenant, "delete a tenant": s.deleteTenant, "lose a Pod": s.losePod, "kill a part": s.killPart, "down and up": s.restart,
		"cut a node off": s.cutOff, "crash a node": s.crash, "remove a node": s.removeNode,
	}
	names := slices.Sorted(maps.Keys(steps))
	for start, n := time.Now(), 1; time.Since(start) < length; n++ {
		name := names[s.random.IntN(len(names))]
		what, err := steps[name](t.Context())
		require.NoError(t, err, "step %d, %s (%s)", n, name, what)
		if what == "" {
			continue // nothing to do it to
		}
		began := time.Now()
		require.NoError(t, s.well(t.Context()), "after step %d, %s (%s)", n, name, what)
		memory, err := s.memory(t.Context())
		require.NoError(t, err)
		t.Logf("%8s step %3d  %-16s %-32s well after %5.1f s, %d tenants, %d MiB", time.Since(start).Round(time.Second), n, name, what,
			time.Since(began).Seconds(), len(s.tenants), memory>>20)
	}
}

// well returns nil once every tenant's containers answer and nothing is left of tenants that are gone.
func (s *soak) well(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
		if err := s.tenants[name].AnswersWithin(ctx, patience); err != nil {
			return err
		}
	}
	// The clients' certificates and the instance are what they are after the last start.
	kube, inst, err := s.cloud.Connect()
	if err != nil {
		return err
	}
	return cloud.Eventually(ctx, patience, "nothing is left of deleted tenants, and everything fits together", func(ctx context.Context) error {
		if err := consistent.Error(consistent.Gone(ctx, kube, s.deleted...)); err != nil {
			return err
		}
		return consistent.Cloud(ctx, kube, inst, nodes)
	})
}

// aNode is one of the nodes.
func (s *soak) aNode() (instance.Node, error) {
	_, inst, err := s.cloud.Connect()
	return instance.Node{Instance: inst, Index: 1 + s.random.IntN(nodes)}, err
}

// cutOff pulls a node's cable for at most a minute.
func (s *soak) cutOff(ctx context.Context) (string, error) {
	n, err := s.aNode()
	if err != nil {
		return "", err
	}
	length := time.Duration(1+s.random.IntN(60)) * time.Second
	what := fmt.Sprintf("%s for %s", n.Name(), length)
	if err := fault.Plug(n, false); err != nil {
		return what, err
	}
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
	return what, fault.Plug(n, true)
}

func (s *soak) crash(context.Context) (string, error) {
	n, err := s.aNode()
	if err != nil {
		return "", err
	}
	return n.Name(), fault.Crash(n)
}

func (s *soak) makeTenant(ctx context.Context) (string, error) {
	if len(s.tenants) == most {
		return "", nil
	}
	s.made++
	tenant := cloud.Tenant{Cloud: s.cloud, Name: fmt.Sprintf("soak-%d", s.made), Outside: true}
	s.tenants[tenant.Name] = tenant
	return tenant.Name, tenant.Create(ctx)
}

// anyTenant is one of the tenants, "" when there is none.
func (s *soak) anyTenant() string {
	if len(s.tenants) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(s.tenants))
	return names[s.random.IntN(len(names))]
}

// deleteTenant deletes all that a tenant has in random order, a part of the cloud being down meanwhile or not. Everything is gone
// within 30 s once that part runs.
func (s *soak) deleteTenant(ctx context.Context) (string, error) {
	name := s.anyTenant()
	if name == "" {
		return "", nil
	}
	tenant := s.tenants[name]
	delete(s.tenants, name)
	s.deleted = append(s.deleted, name)
	down := []string{"", "mni-cloud", "node-1/mni-netd", "node-2/mni-netd"}[s.random.IntN(4)]
	what := fmt.Sprintf("%s down %s", name, down)
	up := func() {}
	if down != "" {
		up = s.cloud.KeepDown(ctx, down)
	}
	objects := tenant.Objects()
	s.random.Shuffle(len(objects), func(i, j int) { objects[i], objects[j] = objects[j], objects[i] })
	for _, object := range objects {
		if _, err := s.cloud.Mni(ctx, append([]string{"delete", "--wait=false", "--ignore-not-found"}, object...)...); err != nil {
			up()
			return what, err
		}
	}
	up()
	err := cloud.Eventually(ctx, patience, "every part runs", func(ctx context.Context) error {
		_, err := s.cloud.Mni(ctx, "status")
		return err
	})
	if err != nil {
		return what, err
	}
	kube, _, err := s.cloud.Connect()
	if err != nil {
		return what, err
	}
	return what, cloud.Eventually(ctx, goneWithin, "nothing is left of "+name, func(ctx context.Context) error {
		return consistent.Error(consistent.Gone(ctx, kube, name))
	})
}

// removeNode deletes a node, whose containers then run elsewhere or nowhere; its kubelet makes it again when it starts.
func (s *soak) removeNode(ctx context.Context) (string, error) {
	n, err := s.aNode()
	if err != nil {
		return "", err
	}
	if _, err := s.cloud.Mni(ctx, "delete", "node", n.Name()); err != nil {
		return n.Name(), err
	}
	return n.Name(), s.cloud.Kill(ctx, n.Name()+"/kubelet")
}

func (s *soak) losePod(ctx context.Context) (string, error) {
	name := s.anyTenant()
	if name == "" {
		return "", nil
	}
	servers := s.tenants[name].Servers()
	server := servers[s.random.IntN(len(servers))]
	pod, err := s.cloud.Mni(ctx, "get", "container", server, "-n", name, "-o", "jsonpath={.status.pod}")
	if err != nil {
		return server, err
	}
	_, err = s.cloud.Mni(ctx, "delete", "pod", pod, "-n", name, "--wait=false")
	return server, err
}

// killPart kills one part of the cloud at once; the supervisor starts it again.
func (s *soak) killPart(ctx context.Context) (string, error) {
	parts, err := s.cloud.Parts(ctx)
	if err != nil {
		return "", err
	}
	parts = slices.DeleteFunc(parts, func(p cloud.Part) bool { return p.PID <= 0 })
	if len(parts) == 0 {
		return "", nil
	}
	part := parts[s.random.IntN(len(parts))]
	return part.Name, syscall.Kill(part.PID, syscall.SIGKILL)
}

func (s *soak) restart(ctx context.Context) (string, error) {
	if _, err := s.cloud.Mni(ctx, "down"); err != nil {
		return "down", err
	}
	_, err := s.cloud.Mni(ctx, "up", "--nodes", strconv.Itoa(nodes))
	return "up", err
}

// memory is what the parts use together, in bytes.
func (s *soak) memory(ctx context.Context) (int64, error) {
	parts, err := s.cloud.Parts(ctx)
	if err != nil {
		return 0, err
	}
	var total int64
	for _, p := range parts {
		total += p.MemoryBytes
	}
	return total, nil
}
