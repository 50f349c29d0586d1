package datapath

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPolicyThatItsOwnerHasNoRoomForIsNotWritten(t *testing.T) {
	d := mustLoad(t, testConfig(bpffs(t)))
	small := Policy{Rules: []Rule{{from("10.0.0.0/8"), []Ports{port(TCP, 80)}}}}
	other := Policy{Rules: []Rule{{from("10.0.0.0/8"), []Ports{port(TCP, 81)}}}}
	large := Policy{Rules: []Rule{{from("10.1.0.0/16"), []Ports{{TCP, 1, 65534}}}}} // 30 prefixes
	for _, p := range []Policy{small, other, large} {
		entries, err := compile(p)
		require.NoError(t, err)
		require.LessOrEqual(t, len(entries.peers), 2)
	}
	room := &PolicyRoom{Peers: 100, Rules: 2}
	first, err := d.Policies.NumberWithin(small, room)
	require.NoError(t, err)
	again, err := d.Policies.NumberWithin(small, room) // another interface's, which takes nothing more
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, 1, room.Rules)
	closed, err := d.Policies.NumberWithin(large, room)
	require.ErrorIs(t, err, ErrNoPolicyRoom)
	require.Equal(t, PolicyClosed, closed)
	_, err = d.Policies.NumberWithin(other, room)
	require.NoError(t, err, "what fits is written after what does not")
	require.Zero(t, room.Rules)
	written, err := d.Policies.Len()
	require.NoError(t, err)
	require.Equal(t, 2, written)
	// Another owner has its own room, also for what is written already.
	neighbour := &PolicyRoom{Peers: 100, Rules: 100}
	_, err = d.Policies.NumberWithin(large, neighbour)
	require.NoError(t, err)
	_, err = d.Policies.NumberWithin(large, room)
	require.ErrorIs(t, err, ErrNoPolicyRoom)
	_, err = d.Policies.NumberWithin(large, neighbour)
	require.NoError(t, err)
}

func TestARestartKnowsThePoliciesAndNumbersNoneTwice(t *testing.T) {
	pins := bpffs(t)
	d := mustLoad(t, testConfig(pins))
	number := func(d *Datapath, p Policy) PolicyID {
		id, err := d.Policies.Number(p)
		require.NoError(t, err)
		return id
	}
	web := Policy{Rules: []Rule{{from("10.0.0.0/8"), []Ports{{TCP, 80, 90}}}, {[]Peer{{prefix("10.1.0.0/16"), []netip.Prefix{prefix("10.1.2.0/24")}}}, nil}}}
	ssh := Policy{Rules: []Rule{{nil, []Ports{port(TCP, 22)}}}}
	same := Policy{Rules: []Rule{{from("0.0.0.0/0"), []Ports{port(TCP, 22)}}, {from("0.0.0.0/0"), []Ports{port(TCP, 22)}}}}
	require.Equal(t, PolicyClosed, number(d, Policy{}))
	require.Equal(t, PolicyNone, number(d, Policy{Rules: []Rule{{}}}))
	first, second := number(d, web), number(d, ssh)
	require.NotEqual(t, first, second)
	require.Equal(t, second, number(d, same), "written otherwise, the same in the tables")
	require.Equal(t, first, number(d, web))

	d = mustLoad(t, testConfig(pins))
	require.Equal(t, first, number(d, web))
	require.Equal(t, second, number(d, ssh))
	removed, err := d.Policies.Collect(map[PolicyID]bool{first: true})
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	removed, err = d.Policies.Collect(map[PolicyID]bool{first: true})
	require.NoError(t, err)
	require.Zero(t, removed)
	require.Greater(t, number(d, ssh), second, "a number is never given to another policy, nor again")

	_, err = d.Policies.Collect(nil)
	require.NoError(t, err)
	d = mustLoad(t, testConfig(pins))
	require.Greater(t, number(d, ssh), second+1)
	_, err = d.Policies.Collect(nil)
	require.NoError(t, err)
	peers, err := d.Policies.peers.List()
	require.NoError(t, err)
	rules, err := d.Policies.rules.List()
	require.NoError(t, err)
	require.Empty(t, peers)
	require.Empty(t, rules)
}
