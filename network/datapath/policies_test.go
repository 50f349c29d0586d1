package datapath

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

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
