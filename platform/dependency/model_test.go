package dependency

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	kit "github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/platform/dependency/declare"
	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// model is a world in miniature: an API server with objects, the Dependency Controller with a cache that is behind, and a service that
// begins and ends objects as kit/dependency says, with a cache of its own. Each step is drawn; anything may be late, repeated or lost.
type model struct {
	t     *testing.T
	r     *rand.Rand
	why   string
	kind  *kind
	clock int
	// now is what the API server has.
	now map[graph.Key]*object
	// seen is the controller's cache, lag the objects of which it has not seen the newest version.
	seen *state
	lag  map[graph.Key]bool
	// service is what the service's cache has.
	service map[graph.Key]*object
	order   []graph.Key
}

const ownFinalizer = "test.mnicloud.jp/cleanup"

var testKind = &kind{
	GroupVersionKind: schema.GroupVersionKind{Group: "lab.mnicloud.jp", Version: "v1", Kind: "Thing"}, status: true,
	Kind: declare.Kind{DependsOn: true, Reports: true, Dependents: true},
}

func newModel(t *testing.T, seed uint64) *model {
	t.Helper()
	m := &model{
		t: t, r: rand.New(rand.NewPCG(seed, 0)), why: fmt.Sprintf("seed %d", seed), kind: testKind,
		now: map[graph.Key]*object{}, lag: map[graph.Key]bool{}, service: map[graph.Key]*object{},
	}
	m.restart()
	return m
}

func thing(i int) graph.Key {
	return graph.Key{GroupKind: testKind.GroupKind(), Namespace: "red", Name: strconv.Itoa(i)}
}

// restart loses what the controller holds in memory and lists everything.
func (m *model) restart() {
	m.seen = newState()
	m.seen.setKinds([]schema.GroupKind{m.kind.GroupKind()})
	m.seen.setListed()
	m.seen.setKnown(m.kind.GroupKind(), true)
	for _, o := range m.now {
		m.seen.set(o)
	}
	clear(m.lag)
}

// write changes an object on the API server, if it is there and not newer than what the writer knew; "" is whatever is there.
func (m *model) write(key graph.Key, version string, change func(*object)) {
	was := m.now[key]
	if was == nil || version != "" && was.ResourceVersion != version {
		return
	}
	o := *was
	o.Finalizers = slices.Clone(was.Finalizers)
	change(&o)
	m.clock++
	o.ResourceVersion = strconv.Itoa(m.clock)
	m.lag[key] = true
	if was.begun() && !o.begun() {
		m.taken(key)
	}
	if o.going() && len(o.Finalizers) == 0 {
		delete(m.now, key)
		m.order = append(m.order, key)
		return
	}
	m.now[key] = &o
}

// taken checks, when an object is taken away, that nothing that has begun depends on it, unless it depends on itself.
func (m *model) taken(key graph.Key) {
	all := m.truth()
	for _, from := range all.Dependents(key, graph.Needs) {
		require.True(m.t, !m.now[from].begun() || all.Reaches(key, from), "%s: %s is taken away before %s, which depends on it", m.why, key, from)
	}
}

// truth is the graph by what the API server has.
func (m *model) truth() *graph.Graph {
	all := graph.New()
	for k, o := range m.now {
		edges, _ := declare.DependsOnEdges(k.Namespace, o.on, m.seen.kinds)
		all.Set(k, edges)
	}
	return all
}

func (m *model) create(i int, on ...int) {
	m.clock++
	key := thing(i)
	o := &object{key: key, kind: m.kind, ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: types.UID(strconv.Itoa(m.clock)), ResourceVersion: strconv.Itoa(m.clock), Generation: 1,
	}}
	for _, j := range on {
		o.on = append(o.on, kit.Dependency{Kind: "Thing", Name: strconv.Itoa(j)})
	}
	m.now[key] = o
	m.lag[key] = true
}

// observe lets the controller's cache see the newest version of an object.
func (m *model) observe(key graph.Key) {
	delete(m.lag, key)
	if o := m.now[key]; o != nil {
		m.seen.set(o)
	} else {
		m.seen.remove(key)
	}
}

// look is a reconcile of the controller on what it has seen. It may die after the guard was written.
func (m *model) look(key graph.Key) {
	d, ok := m.seen.decide(key)
	if !ok {
		return
	}
	if d.guard || d.unguard {
		m.write(key, d.object.ResourceVersion, func(o *object) {
			o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == kit.Guard })
			if d.guard {
				o.Finalizers = append(o.Finalizers, kit.Guard)
			}
		})
		if m.r.IntN(4) == 0 {
			return
		}
	}
	if d.tell && m.now[key] != nil && m.now[key].UID == d.object.UID {
		m.write(key, "", func(o *object) { o.seen = d.seen })
	}
}

// Dependencies implements kit.Object.
func (o *object) Dependencies() kit.Declared {
	return kit.Declared{On: o.on, Seen: o.seen, Dependents: o.dependents}
}

// serve is a reconcile of the service on what its cache has.
func (m *model) serve(key graph.Key) {
	o := m.service[key]
	switch {
	case o == nil:
	case o.going():
		if kit.Held("Thing", o) == nil {
			m.write(key, o.ResourceVersion, func(o *object) {
				o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool { return f == ownFinalizer })
			})
		}
	case kit.Waits(o, ownFinalizer) == nil && !slices.Contains(o.Finalizers, ownFinalizer):
		m.write(key, o.ResourceVersion, func(o *object) { o.Finalizers = append(o.Finalizers, ownFinalizer) })
	case slices.Contains(o.Finalizers, ownFinalizer) && !o.ready:
		m.write(key, o.ResourceVersion, func(o *object) { o.ready = true })
	}
}

// step does something drawn to an object drawn.
func (m *model) step(n int) {
	key := thing(m.r.IntN(n))
	switch m.r.IntN(8) {
	case 0, 1:
		m.observe(key)
	case 2, 3:
		m.look(key)
	case 4:
		m.service[key] = m.now[key]
	case 5, 6:
		m.serve(key)
	case 7:
		if m.r.IntN(20) == 0 {
			m.restart()
		}
	}
}

// settle lets everybody see and do everything until nothing changes any more.
func (m *model) settle(n int) {
	for before := -1; before != m.clock; {
		before = m.clock
		for i := range n {
			m.observe(thing(i))
		}
		for i := range n {
			key := thing(i)
			m.look(key)
			m.observe(key)
			m.service[key] = m.now[key]
			m.serve(key)
			m.observe(key)
		}
		require.Less(m.t, m.clock, 100_000, "%s: it does not come to rest", m.why)
	}
}

// delete asks an object to go.
func (m *model) delete(key graph.Key) {
	m.write(key, "", func(o *object) { o.DeletionTimestamp = &metav1.Time{} })
}

// https://github.com/kubernetes-sigs/kro/issues/1316, https://github.com/kubernetes-sigs/kro/issues/1171,
// https://github.com/crossplane/crossplane/issues/5849, https://github.com/fluxcd/kustomize-controller/issues/1712
func TestOfTenThousandGraphsWithCrashesAndStaleCachesAllEndInOrder(t *testing.T) {
	count := 10_000
	if text := os.Getenv("GRAPHS"); text != "" {
		var err error
		count, err = strconv.Atoi(text)
		require.NoError(t, err, "GRAPHS")
	} else if testing.Short() {
		count = 500
	}
	for seed := range count {
		m := newModel(t, uint64(seed))
		n := 2 + m.r.IntN(7)
		// Some have cycles; in some, objects are asked to go while others are still made.
		cycles, early := m.r.IntN(4) == 0, m.r.IntN(3) == 0
		for i := range n {
			var on []int
			for range m.r.IntN(3) {
				switch j := m.r.IntN(n); {
				case j < i, cycles && j != i:
					if !slices.Contains(on, j) {
						on = append(on, j)
					}
				}
			}
			m.create(i, on...)
			for range m.r.IntN(30) {
				m.step(n)
			}
			if early && m.r.IntN(3) == 0 {
				m.delete(thing(m.r.IntN(n)))
			}
		}
		if !early && m.r.IntN(2) == 0 {
			m.settle(n)
			m.allBegun()
		}
		// Everything is asked to go in an order drawn, while all sorts of things happen; or one is, with all that depends on it.
		going := m.r.Perm(n)
		if !early && m.r.IntN(2) == 0 {
			plan := m.cascade()
			for _, key := range plan {
				m.delete(key)
				for range m.r.IntN(6) {
					m.step(n)
				}
			}
			m.settle(n)
			require.ElementsMatch(t, plan, m.order, "%s: the preview is what went", m.why)
		}
		for _, i := range going {
			m.delete(thing(i))
			for range m.r.IntN(6) {
				m.step(n)
			}
		}
		m.settle(n)
		require.Empty(t, m.now, "%s: everything was asked to go", m.why)
	}
}

// allBegun checks that at rest what can begin has, and what cannot is told why.
func (m *model) allBegun() {
	for key, o := range m.now {
		cycle := false
		for _, k := range append([]graph.Key{key}, m.reached(key)...) {
			cycle = cycle || m.seen.graph.Cycle(k) != nil
		}
		require.Equal(m.t, !cycle, o.begun() && o.ready, "%s: %s %v %+v", m.why, key, o.Finalizers, o.seen)
		if m.seen.graph.Cycle(key) != nil {
			require.Equal(m.t, kit.ReasonCycle, o.seen.Reason, m.why)
		}
		for _, d := range o.on {
			to := m.now[graph.Key{GroupKind: key.GroupKind, Namespace: key.Namespace, Name: d.Name}]
			require.True(m.t, to.guarded() || m.seen.graph.Reaches(to.key, key), "%s: %s guards nothing", m.why, key)
		}
	}
}

// reached are all objects that an object depends on.
func (m *model) reached(key graph.Key) []graph.Key {
	var out []graph.Key
	for other := range m.now {
		if other != key && m.seen.graph.Reaches(key, other) {
			out = append(out, other)
		}
	}
	return out
}

// cascade is what would go with an object drawn, by what the API server has.
func (m *model) cascade() []graph.Key {
	g := m.truth()
	keys := g.Keys()
	return g.PlanOf([]graph.Key{keys[m.r.IntN(len(keys))]}).Order
}
