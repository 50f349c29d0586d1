package controller

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// errNoDefaultVPC says that numbers cannot be given yet.
var errNoDefaultVPC = errors.New("the default VPC, which remembers the numbers given, does not exist yet")

// sequence gives numbers (VPC IDs, VNIs) that nobody else gets. The highest one given stands in an annotation of the default
// VPC and is raised by compare-and-swap (the object's resourceVersion), so that two controllers at once never get the same
// number, and a number is not given again soon after its holder went.
type sequence struct {
	client client.Client
	live   client.Reader
	// annotation of the default VPC that holds the highest number given.
	annotation string
	// used lists the numbers in use, from a cache or from the API server.
	used func(ctx context.Context, from client.Reader) (map[uint32]bool, error)
	// mu keeps workers of this process from failing each other's compare-and-swap; correctness does not need it.
	mu sync.Mutex
}

// swapTries bounds how often another controller may win the compare-and-swap before we give up for now.
const swapTries = 10

// next returns a number that is this caller's alone.
func (s *sequence) next(ctx context.Context) (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range swapTries {
		n, err := s.try(ctx)
		if !apierrors.IsConflict(err) {
			return n, err
		}
	}
	return 0, fmt.Errorf("raise %s of the default VPC: others raised it first, %d times", s.annotation, swapTries)
}

func (s *sequence) try(ctx context.Context) (uint32, error) {
	var home netv1.VPC
	if err := s.live.Get(ctx, client.ObjectKey{Name: netv1.DefaultVPC}, &home); err != nil {
		if apierrors.IsNotFound(err) {
			return 0, errNoDefaultVPC
		}
		return 0, fmt.Errorf("read the default VPC: %w", err)
	}
	last, err := strconv.ParseUint(home.Annotations[s.annotation], 10, 32)
	remembered := err == nil
	// What the annotation remembers was given after anything a cache has missed; without it only the API server knows.
	from := client.Reader(s.client)
	if !remembered {
		from = s.live
	}
	used, err := s.used(ctx, from)
	if err != nil {
		return 0, err
	}
	if !remembered {
		for n := range used {
			last = max(last, uint64(n))
		}
	}
	n, ok := following(uint32(last), used) // parsed as 32 bits
	if !ok {
		return 0, fmt.Errorf("all numbers from %d to %d are in use", netv1.FirstTenantVNI, netv1.MaxVNI)
	}
	base := home.DeepCopy()
	if home.Annotations == nil {
		home.Annotations = map[string]string{}
	}
	home.Annotations[s.annotation] = strconv.FormatUint(uint64(n), 10)
	return n, s.client.Patch(ctx, &home, optimistic(base))
}

// following is the first number after last that is not in use; after the highest it starts again from the first.
func following(last uint32, used map[uint32]bool) (uint32, bool) {
	if last < netv1.FirstTenantVNI-1 || last > netv1.MaxVNI {
		last = netv1.FirstTenantVNI - 1
	}
	n := last
	for range netv1.MaxVNI - netv1.FirstTenantVNI + 1 {
		if n++; n > netv1.MaxVNI {
			n = netv1.FirstTenantVNI
		}
		if !used[n] {
			return n, true
		}
	}
	return 0, false
}

func vpcIDs(ctx context.Context, from client.Reader) (map[uint32]bool, error) {
	var list netv1.VPCList
	if err := from.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list VPCs: %w", err)
	}
	used := map[uint32]bool{}
	for i := range list.Items {
		used[list.Items[i].Status.ID] = true
	}
	return used, nil
}

func subnetVNIs(ctx context.Context, from client.Reader) (map[uint32]bool, error) {
	var list netv1.SubnetList
	if err := from.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list Subnets: %w", err)
	}
	used := map[uint32]bool{}
	for i := range list.Items {
		used[list.Items[i].Status.VNI] = true
	}
	return used, nil
}
