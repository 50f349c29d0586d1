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
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/test/cloud"
)

const (
	// most is how many tenants there are at most.
	most = 4
	// patience is how long the cloud may take to be well again after a failure.
	patience = 3 * time.Minute
)

// soak is the state of a run.
type soak struct {
	cloud   cloud.Cloud
	random  *rand.Rand
	tenants map[string]cloud.Tenant
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
	_, err = s.cloud.Mni(t.Context(), "up", "--nodes", "2")
	require.NoError(t, err)

	steps := map[string]func(context.Context) (string, error){
		"make a tenant": s.makeTenant, "delete a tenant": s.deleteTenant, "lose a Pod": s.losePod, "kill a part": s.killPart, "down and up": s.restart,
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
	return cloud.Eventually(ctx, patience, "nothing is left of deleted tenants", func(ctx context.Context) error {
		out, err := s.cloud.Mni(ctx, "get", "networkinterfaces.net.mnicloud.jp", "-o", "jsonpath={range .items[*]}{.spec.namespace}{\"\\n\"}{end}")
		if err != nil {
			return err
		}
		for _, namespace := range strings.Fields(out) {
			if _, there := s.tenants[namespace]; !there && strings.HasPrefix(namespace, "soak-") {
				return fmt.Errorf("an interface of namespace %s", namespace)
			}
		}
		return nil
	})
}

func (s *soak) makeTenant(ctx context.Context) (string, error) {
	if len(s.tenants) == most {
		return "", nil
	}
	s.made++
	tenant := cloud.Tenant{Cloud: s.cloud, Name: fmt.Sprintf("soak-%d", s.made)}
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

func (s *soak) deleteTenant(ctx context.Context) (string, error) {
	name := s.anyTenant()
	if name == "" {
		return "", nil
	}
	tenant := s.tenants[name]
	delete(s.tenants, name)
	return name, tenant.Delete(ctx)
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
	_, err := s.cloud.Mni(ctx, "up", "--nodes", "2")
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
