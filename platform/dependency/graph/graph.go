// Package graph knows what depends on what: nodes are tenants' objects, edges what they name. What comes in are the edges of each object;
// what goes out are dependents, cycles, the order in which things go, and what would go. It is pure: it knows neither Kubernetes' API
// nor time.
package graph

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Key is an object.
type Key struct {
	schema.GroupKind
	Namespace, Name string
}

// String is how people are told of the object: "Subnet front".
func (k Key) String() string { return k.Kind + " " + k.Name }

// Compare orders keys by namespace, kind, name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Namespace, other.Namespace), cmp.Compare(k.Kind, other.Kind), cmp.Compare(k.Name, other.Name), cmp.Compare(k.Group, other.Group))
}

// Strength is how much an edge binds.
type Strength int

// The strengths, each with what the ones before it do.
const (
	// Names: it is only said. What is named goes without asking.
	Names Strength = iota
	// Keeps: what is named stays as long as it is named. The field can be changed.
	Keeps
	// Needs: there is no life without what is named: with that goes, on request, what needs it.
	Needs
)

// String is the word between the two: "Subnet front needs Vpc main".
func (s Strength) String() string {
	switch s {
	case Needs:
		return "needs"
	case Keeps:
		return "keeps"
	}
	return "names"
}

// Edge leads from an object to what it names.
type Edge struct {
	To       Key
	Strength Strength
	// Field is the path of the field that names it: spec.vpc.
	Field string
	// Guarded: the Dependency Controller waits for it and keeps it; otherwise the controllers of the two kinds do.
	Guarded bool
}

// Graph is what depends on what. The zero value is not usable; New makes one. It is not safe for use by several at once.
type Graph struct {
	out map[Key][]Edge
	// in has, for each object that something names, those that do. What is named need not exist.
	in map[Key]map[Key]struct{}
}

// New makes an empty graph.
func New() *Graph { return &Graph{out: map[Key][]Edge{}, in: map[Key]map[Key]struct{}{}} }

// Set says that an object exists and has the edges, and no others.
func (g *Graph) Set(key Key, edges []Edge) {
	g.Remove(key)
	g.out[key] = edges
	for _, e := range edges {
		if g.in[e.To] == nil {
			g.in[e.To] = map[Key]struct{}{}
		}
		g.in[e.To][key] = struct{}{}
	}
}

// Remove says that an object does not exist (any more).
func (g *Graph) Remove(key Key) {
	for _, e := range g.out[key] {
		delete(g.in[e.To], key)
		if len(g.in[e.To]) == 0 {
			delete(g.in, e.To)
		}
	}
	delete(g.out, key)
}

// Has tells whether the object exists.
func (g *Graph) Has(key Key) bool {
	_, ok := g.out[key]
	return ok
}

// Keys are all objects, in order.
func (g *Graph) Keys() []Key { return slices.SortedFunc(maps.Keys(g.out), Key.Compare) }

// Edges are those of an object, as they were set.
func (g *Graph) Edges(key Key) []Edge { return g.out[key] }

// Dependents are the objects that have an edge of at least the strength to an object, in order. An object is not its own dependent.
func (g *Graph) Dependents(key Key, least Strength) []Key {
	var out []Key
	for from := range g.in[key] {
		if from != key && g.binds(from, key, func(e Edge) bool { return e.Strength >= least }) {
			out = append(out, from)
		}
	}
	slices.SortFunc(out, Key.Compare)
	return out
}

// Guarded are the objects that wait for an object by an edge that is guarded, in order.
func (g *Graph) Guarded(key Key) []Key {
	var out []Key
	for from := range g.in[key] {
		if g.binds(from, key, func(e Edge) bool { return e.Guarded }) {
			out = append(out, from)
		}
	}
	slices.SortFunc(out, Key.Compare)
	return out
}

// IsGuarded tells whether there is a dependent for which an object is guarded. One that the object itself depends on does not count: each
// of the two would wait for the other for ever.
func (g *Graph) IsGuarded(key Key) bool {
	for from := range g.in[key] {
		if g.binds(from, key, func(e Edge) bool { return e.Guarded }) && !g.Reaches(key, from) {
			return true
		}
	}
	return false
}

func (g *Graph) binds(from, to Key, counts func(Edge) bool) bool {
	return slices.ContainsFunc(g.out[from], func(e Edge) bool { return e.To == to && counts(e) })
}

// Reaches tells whether an object is the other or depends on it, through others or not, by edges that keep.
func (g *Graph) Reaches(from, to Key) bool { return g.path(from, to) != nil }

// Cycle is a way from the object back to itself by edges that keep: the objects on it in order, the first one again at the end. It is nil
// when there is none.
func (g *Graph) Cycle(key Key) []Key { return g.CycleWith(key, g.out[key]) }

// CycleWith is the cycle that there would be if the object had the edges.
func (g *Graph) CycleWith(key Key, edges []Edge) []Key {
	for _, e := range edges {
		if e.Strength < Keeps {
			continue
		}
		if way := g.path(e.To, key); way != nil {
			return append([]Key{key}, way...)
		}
	}
	return nil
}

// path is a shortest way by edges that keep, both ends included; nil when there is none.
func (g *Graph) path(from, to Key) []Key {
	before := map[Key]Key{from: from}
	for queue := []Key{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			var way []Key
			for ; at != from; at = before[at] {
				way = append(way, at)
			}
			way = append(way, from)
			slices.Reverse(way)
			return way
		}
		for _, e := range g.out[at] {
			if _, seen := before[e.To]; !seen && e.Strength >= Keeps {
				before[e.To] = at
				queue = append(queue, e.To)
			}
		}
	}
	return nil
}
