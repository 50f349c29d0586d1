package graph

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func key(kind, name string) Key {
	return Key{GroupKind: schema.GroupKind{Group: "vpc.mnicloud.jp", Kind: kind}, Namespace: "red", Name: name}
}

var vpc, front, table, web, group = key("Vpc", "main"), key("Subnet", "front"), key("RouteTable", "inspected"), key("Container", "web"), key("SecurityGroup", "web")

// shop is a Vpc with a Subnet, whose RouteTable leads through the Container in it, which is in a SecurityGroup that names itself.
func shop() *Graph {
	g := New()
	g.Set(vpc, nil)
	g.Set(front, []Edge{{To: vpc, Strength: Needs, Field: "spec.vpc"}, {To: table, Strength: Keeps, Field: "spec.routeTable"}})
	g.Set(table, []Edge{{To: vpc, Strength: Needs, Field: "spec.vpc"}, {To: web, Strength: Names, Field: "spec.routes[0].container"}})
	g.Set(web, []Edge{{To: front, Strength: Needs, Field: "spec.subnet"}, {To: group, Strength: Keeps, Field: "spec.securityGroups[0]"}})
	g.Set(group, []Edge{{To: group, Strength: Names, Field: "spec.ingress[0].securityGroup"}})
	return g
}

func TestWhatNeedsSomethingGoesBeforeIt(t *testing.T) {
	g := shop()
	require.Equal(t, []Key{web, front, table, vpc}, g.PlanOf([]Key{vpc}).Order)
	require.Empty(t, g.PlanOf([]Key{vpc}).Kept)
	require.Equal(t, []Key{web}, g.PlanOf([]Key{web}).Order, "what only names it does not go with it")
	require.Empty(t, g.PlanOf([]Key{key("Vpc", "none")}).Order)
}

func TestWhatCanBeChangedIsNotDeletedButNamed(t *testing.T) {
	p := shop().PlanOf([]Key{table})
	require.Equal(t, []Key{table}, p.Order)
	require.Equal(t, []Hold{{front, Edge{To: table, Strength: Keeps, Field: "spec.routeTable"}}}, p.Kept)
}

func TestACycleIsFoundFromEachOfItsObjectsAndNamesThem(t *testing.T) {
	g := shop()
	require.Nil(t, g.Cycle(front), "a route back is no dependency")
	on := []Edge{{To: web, Strength: Needs, Guarded: true}}
	require.Equal(t, []Key{vpc, web, front, vpc}, g.CycleWith(vpc, on))
	require.Nil(t, g.Cycle(vpc), "nothing was changed by asking")
	g.Set(vpc, on)
	require.Equal(t, []Key{front, vpc, web, front}, g.Cycle(front))
	require.Nil(t, g.Cycle(group), "it is not on it")
	require.Equal(t, []Key{group, group}, g.CycleWith(group, []Edge{{To: group, Strength: Needs}}), "on itself")
	require.Equal(t, []Key{vpc}, g.Guarded(web))
	require.False(t, g.IsGuarded(web), "in a cycle nobody guards: everything can be deleted")
	g.Set(key("Vpc", "other"), on)
	require.True(t, g.IsGuarded(web), "for one that is not on it")
}

func TestWhatIsGoneIsMissed(t *testing.T) {
	g := shop()
	g.Remove(vpc)
	g.Remove(group)
	require.Equal(t, []Hold{
		{web, Edge{To: group, Strength: Keeps, Field: "spec.securityGroups[0]"}},
		{table, Edge{To: vpc, Strength: Needs, Field: "spec.vpc"}},
		{front, Edge{To: vpc, Strength: Needs, Field: "spec.vpc"}},
	}, g.Orphans(Keeps))
	require.Equal(t, []Key{table, front}, g.Dependents(vpc, Needs))
	for _, k := range []Key{front, table, web} {
		g.Remove(k)
	}
	require.Empty(t, g.in, "nothing is kept of what is gone")
}

// graphs is how many random graphs a test draws: GRAPHS, or this many.
func graphs(t *testing.T, n int) int {
	t.Helper()
	text := os.Getenv("GRAPHS")
	if text == "" {
		return n
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, "GRAPHS")
	return n
}

// random is a graph of at most n objects, maybe with cycles and with edges to what does not exist.
func random(r *rand.Rand, n int) *Graph {
	g := New()
	n = 1 + r.IntN(n)
	for i := range n {
		var edges []Edge
		for range r.IntN(4) {
			edges = append(edges, Edge{To: key("K", strconv.Itoa(r.IntN(n+1))), Strength: Strength(r.IntN(3)), Guarded: r.IntN(2) == 0})
		}
		g.Set(key("K", strconv.Itoa(i)), edges)
	}
	return g
}

func TestOfTenThousandGraphsTheOrderHoldsAndThePlanIsWhatGoes(t *testing.T) {
	for seed := range graphs(t, 10_000) {
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		g := random(r, 12)
		keys := g.Keys()
		roots := []Key{keys[r.IntN(len(keys))], keys[r.IntN(len(keys))]}
		p := g.PlanOf(roots)
		why := fmt.Sprintf("seed %d", seed)
		// Each stands there once, with everything that needs it, and before it unless the two are on a cycle.
		at := map[Key]int{}
		for i, k := range p.Order {
			require.NotContains(t, at, k, why)
			at[k] = i
		}
		for _, k := range roots {
			require.Contains(t, at, k, why)
		}
		for _, k := range p.Order {
			for _, from := range g.Dependents(k, Needs) {
				require.Contains(t, at, from, why)
			}
			for _, from := range g.Dependents(k, Keeps) {
				i, goes := at[from]
				require.True(t, !goes || i < at[k] || g.Reaches(k, from), "%s: %s after %s", why, from, k)
				require.Equal(t, !goes, slices.ContainsFunc(p.Kept, func(h Hold) bool { return h.From == from && h.To == k }), why)
			}
			// Nothing goes that neither was asked to nor needs what does.
			require.True(t, slices.Contains(roots, k) || slices.ContainsFunc(g.Edges(k), func(e Edge) bool {
				_, goes := at[e.To]
				return goes && e.Strength == Needs
			}), why)
		}
		for _, k := range keys {
			cycle := g.Cycle(k)
			for i := 1; i < len(cycle); i++ {
				require.True(t, g.binds(cycle[i-1], cycle[i], func(e Edge) bool { return e.Strength >= Keeps }), why)
			}
			require.Equal(t, cycle != nil, slices.ContainsFunc(g.Edges(k), func(e Edge) bool { return e.Strength >= Keeps && g.Reaches(e.To, k) }), why)
		}
		for _, k := range keys {
			g.Remove(k)
		}
		require.Empty(t, g.in, why)
	}
}
