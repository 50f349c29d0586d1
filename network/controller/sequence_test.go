package controller

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

func TestTheFollowingNumberIsFreeAndRises(t *testing.T) {
	for _, tc := range []struct {
		last uint32
		used map[uint32]bool
		want uint32
	}{
		{0, nil, 1001},
		{1, nil, 1001},
		{1001, nil, 1002},
		{1001, map[uint32]bool{1002: true, 1003: true}, 1004},
		{netv1.MaxVNI, map[uint32]bool{1001: true}, 1002},
		{netv1.MaxVNI + 7, nil, 1001},
	} {
		got, ok := following(tc.last, tc.used)
		require.True(t, ok)
		require.Equal(t, tc.want, got, "after %d", tc.last)
	}
}

func TestAFollowingNumberIsNeverInUse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		used := map[uint32]bool{}
		for _, n := range rapid.SliceOf(rapid.Uint32Range(netv1.FirstTenantVNI, netv1.FirstTenantVNI+20)).Draw(t, "used") {
			used[n] = true
		}
		got, ok := following(rapid.Uint32().Draw(t, "last"), used)
		if !ok || used[got] || got < netv1.FirstTenantVNI || got > netv1.MaxVNI {
			t.Fatalf("got %d, %v", got, ok)
		}
	})
}

func numbers(c client.Client) *sequence {
	return &sequence{client: c, live: c, annotation: netv1.AnnotationLastVPCID, used: vpcIDs}
}

func TestControllersThatDoNotKnowOfEachOtherNeverGetTheSameNumber(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(newVPC(netv1.DefaultVPC)).Build()
	const controllers, each = 4, 25
	var mu sync.Mutex
	var all sync.WaitGroup
	seen := map[uint32]bool{}
	for range controllers {
		all.Go(func() {
			s := numbers(c)
			for got := 0; got < each; {
				n, err := s.next(t.Context())
				if err != nil {
					continue // the others were first ten times in a row
				}
				got++
				mu.Lock()
				if seen[n] {
					t.Errorf("%d twice", n)
				}
				seen[n] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	require.Len(t, seen, controllers*each)
}

func TestANumberIsNotGivenAgainRightAfterItsHolderWent(t *testing.T) {
	c := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(newVPC(netv1.DefaultVPC)).Build()
	first, err := numbers(c).next(t.Context())
	require.NoError(t, err)
	second, err := numbers(c).next(t.Context())
	require.NoError(t, err)
	require.Equal(t, []uint32{1001, 1002}, []uint32{first, second})
}

func TestADefaultVPCMadeAnewForgetsNoNumberInUse(t *testing.T) {
	old := newVPC("old")
	old.Status.ID = 1005
	c := fake.NewClientBuilder().WithScheme(testScheme()).WithObjects(newVPC(netv1.DefaultVPC), old).Build()
	n, err := numbers(c).next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1006, n)
}

func TestWithoutADefaultVPCThereAreNoNumbersYet(t *testing.T) {
	_, err := numbers(fake.NewClientBuilder().WithScheme(testScheme()).Build()).next(t.Context())
	require.ErrorIs(t, err, errNoDefaultVPC)
}
