package dependency

import (
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	kit "github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/platform/dependency/declare"
	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// object is what matters of an object. It does not change; a new one takes its place.
type object struct {
	metav1.ObjectMeta
	key  graph.Key
	kind *kind
	// ready: it is Ready, of its present generation. why is what the condition says.
	ready bool
	why   string
	// on is its spec.dependsOn, fields is what its other fields name.
	on     []kit.Dependency
	fields []graph.Edge
	// seen is its status.dependencies, dependents its status.dependents.
	seen       *kit.Status
	dependents []string
}

// kind is a kind of tenants' objects.
type kind struct {
	schema.GroupVersionKind
	resource schema.GroupVersionResource
	declare.Kind
	// status: it has the subresource. leaving: its definition is to go, and its objects with it, whatever depends on them.
	status, leaving bool
}

func (o *object) guarded() bool { return slices.Contains(o.Finalizers, kit.Guard) }

// begun tells whether something else than the guard says by a finalizer that the object has been taken up.
func (o *object) begun() bool {
	return slices.ContainsFunc(o.Finalizers, func(f string) bool { return f != kit.Guard })
}

func (o *object) going() bool { return o.DeletionTimestamp != nil }

// state is what is known of all objects.
type state struct {
	mu      sync.Mutex
	graph   *graph.Graph
	objects map[graph.Key]*object
	// kinds are those whose objects are looked at; all of them when listed. known are those of which all objects are here.
	kinds  []schema.GroupKind
	listed bool
	known  map[schema.GroupKind]bool
	// problems says of objects what of their spec.dependsOn leads nowhere.
	problems map[graph.Key]string
}

func newState() *state {
	return &state{graph: graph.New(), objects: map[graph.Key]*object{}, problems: map[graph.Key]string{}, known: map[schema.GroupKind]bool{}}
}

// set says that there is the object, and returns the objects that are to be looked at again.
func (s *state) set(o *object) []graph.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[o.key]
	s.objects[o.key] = o
	touched := []graph.Key{o.key}
	if before == nil || !reflect.DeepEqual(before.on, o.on) || !reflect.DeepEqual(before.fields, o.fields) {
		touched = append(touched, s.connect(o)...)
	}
	if before == nil || before.UID != o.UID || before.ready != o.ready || before.why != o.why || before.going() != o.going() || before.guarded() != o.guarded() {
		touched = append(touched, s.waiting(o.key)...)
	}
	return touched
}

// connect draws an object's edges anew.
func (s *state) connect(o *object) []graph.Key {
	touched := s.around(o.key)
	edges, err := declare.DependsOnEdges(o.Namespace, o.on, s.kinds)
	delete(s.problems, o.key)
	if err != nil {
		s.problems[o.key] = err.Error()
	}
	s.graph.Set(o.key, append(slices.Clone(o.fields), edges...))
	return append(touched, s.around(o.key)...)
}

// remove says that there is no such object any more, and returns the objects that are to be looked at again.
func (s *state) remove(key graph.Key) []graph.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	touched := append(s.around(key), s.waiting(key)...)
	s.graph.Remove(key)
	delete(s.objects, key)
	delete(s.problems, key)
	return touched
}

// around are the objects that an object's edges matter to: those it names, and when it is on a cycle all of its namespace.
func (s *state) around(key graph.Key) []graph.Key {
	var out []graph.Key
	for _, e := range s.graph.Edges(key) {
		if e.Strength >= graph.Keeps {
			out = append(out, e.To)
		}
	}
	if s.graph.Cycle(key) != nil {
		for other := range s.objects {
			if other.Namespace == key.Namespace {
				out = append(out, other)
			}
		}
	}
	return out
}

// waiting are the objects for which it matters how an object is.
func (s *state) waiting(key graph.Key) []graph.Key { return s.graph.Guarded(key) }

// setKinds says of which kinds objects are known, and returns the objects that are to be looked at again: those whose spec.dependsOn
// led nowhere, or does now.
func (s *state) setKinds(kinds []schema.GroupKind) []graph.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = kinds
	var touched []graph.Key
	for key, o := range s.objects {
		if len(o.on) > 0 {
			touched = append(append(touched, key), s.connect(o)...)
		}
	}
	return touched
}

// setListed says that all kinds are known, and returns the objects that are to be looked at again.
func (s *state) setListed() []graph.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = true
	return s.depending()
}

// setKnown says whether all objects of a kind are here, and returns the objects that are to be looked at again.
func (s *state) setKnown(gk schema.GroupKind, known bool) []graph.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[gk] = known
	return s.depending()
}

// depending are the objects that depend on others.
func (s *state) depending() []graph.Key {
	var out []graph.Key
	for key, o := range s.objects {
		if len(o.on) > 0 || slices.ContainsFunc(o.fields, func(e graph.Edge) bool { return e.Guarded }) {
			out = append(out, key)
		}
	}
	return out
}

// absent tells whether an object that is not here is nowhere: not only not here yet.
func (s *state) absent(key graph.Key) bool {
	return s.listed && (s.known[key.GroupKind] || !slices.Contains(s.kinds, key.GroupKind))
}

// keysOf are the objects of a kind.
func (s *state) keysOf(gk schema.GroupKind) []graph.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []graph.Key
	for key := range s.objects {
		if key.GroupKind == gk {
			out = append(out, key)
		}
	}
	return out
}

// guardedKeys are the objects that have the guard.
func (s *state) guardedKeys() []graph.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []graph.Key
	for key, o := range s.objects {
		if o.guarded() {
			out = append(out, key)
		}
	}
	return out
}
