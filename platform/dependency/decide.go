package dependency

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	kit "github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// most is how many dependents an object's status names.
const most = 10

// decision is what is to be written onto an object.
type decision struct {
	// object is as it was when this was decided.
	object *object
	// guard and unguard: the finalizer is put on, or taken away.
	guard, unguard bool
	// tell: status.dependencies becomes seen.
	tell bool
	seen *kit.Status
}

// decide decides about an object; ok is false when there is none.
func (s *state) decide(key graph.Key) (d decision, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[key]
	if o == nil {
		return d, false
	}
	d.object = o
	needed := s.graph.IsGuarded(key) && !o.kind.leaving
	d.guard = needed && !o.guarded() && !o.going()
	d.unguard = !needed && o.guarded()
	d.seen, d.tell = s.judge(o)
	return d, true
}

// judge says how what an object depends on is. tell is false when its status says so already, or is not to change.
func (s *state) judge(o *object) (seen *kit.Status, tell bool) {
	if !o.kind.Reports || o.going() || o.begun() && o.seen != nil && o.seen.Met {
		return nil, false
	}
	edges := slices.DeleteFunc(slices.Clone(s.graph.Edges(o.key)), func(e graph.Edge) bool { return !e.Guarded })
	if len(edges) == 0 && len(o.on) == 0 {
		return nil, o.seen != nil
	}
	now := &kit.Status{ObservedGeneration: o.Generation}
	switch cycle := s.graph.Cycle(o.key); {
	case cycle != nil:
		now.Reason, now.Message = kit.ReasonCycle, cycleMessage(cycle)
	case s.problems[o.key] != "" && !s.listed:
		return nil, false // the kind may be about to be known
	case s.problems[o.key] != "":
		now.Reason, now.Message = kit.ReasonNotFound, s.problems[o.key]
	default:
		var pending bool
		now.Reason, now.Message, pending = s.unmet(edges)
		if pending {
			return nil, false // the guard, or what is not here yet, brings this back
		}
		now.Met = now.Reason == ""
	}
	return now, o.seen == nil || *o.seen != *now
}

// unmet says which of the edges, the first one of those, leads to what cannot be used yet; no reason when all can be. pending says that
// only guards are missing, or objects that may come yet.
func (s *state) unmet(edges []graph.Edge) (reason, message string, pending bool) {
	for _, e := range edges {
		to, names := s.objects[e.To], fmt.Sprintf("%s names %s %q, which ", e.Field, e.To.Kind, e.To.Name)
		switch {
		case to == nil && !s.absent(e.To):
			pending = true
		case to == nil:
			return kit.ReasonNotFound, names + "does not exist in this namespace; create it, or name another", false
		case to.going():
			return kit.ReasonDeleting, names + "is being deleted; delete this too, or name another", false
		case !to.ready:
			return kit.ReasonNotReady, strings.TrimSuffix(names+"is not ready yet: "+to.why, ": "), false
		case !to.guarded():
			pending = true
		}
	}
	return "", "", pending
}

func cycleMessage(cycle []graph.Key) string {
	var names []string
	for _, key := range cycle {
		names = append(names, key.String())
	}
	return "spec.dependsOn: the resource depends on itself: " + strings.Join(names, " -> ") + "; take one of them out of a spec.dependsOn"
}

// backReferences are what status.dependents of an object is to be; ok is false when it is so already or cannot be.
func (s *state) backReferences(key graph.Key) (o *object, dependents []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o = s.objects[key]
	if o == nil || !o.kind.Dependents {
		return nil, nil, false
	}
	// By age, so that of many those that come later change nothing.
	keys := s.graph.Dependents(key, graph.Keeps)
	slices.SortStableFunc(keys, func(a, b graph.Key) int {
		x, y := s.objects[a], s.objects[b]
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), a.Compare(b))
	})
	for _, k := range keys[:min(len(keys), most)] {
		dependents = append(dependents, k.String())
	}
	return o, dependents, !slices.Equal(dependents, o.dependents)
}
