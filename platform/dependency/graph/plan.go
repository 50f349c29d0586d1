package graph

import "slices"

// Plan is what goes when objects are deleted with all that needs them.
type Plan struct {
	// Order is everything that goes, what needs something before that.
	Order []Key
	// Kept are edges by which what stays keeps something of that: it waits until they are changed.
	Kept []Hold
}

// Hold is an edge with where it begins.
type Hold struct {
	From Key
	Edge
}

// PlanOf says what goes with the objects, themselves included. Objects that do not exist are left out.
func (g *Graph) PlanOf(objects []Key) Plan {
	var p Plan
	going := map[Key]bool{}
	for queue := slices.Clone(objects); len(queue) > 0; queue = queue[1:] {
		if at := queue[0]; !going[at] && g.Has(at) {
			going[at] = true
			queue = append(queue, g.Dependents(at, Needs)...)
		}
	}
	done := map[Key]bool{}
	var visit func(Key)
	visit = func(at Key) {
		if done[at] || !going[at] {
			return
		}
		done[at] = true
		for _, from := range g.Dependents(at, Keeps) {
			visit(from)
		}
		p.Order = append(p.Order, at)
	}
	for _, key := range g.Keys() {
		visit(key)
	}
	for _, at := range p.Order {
		for _, from := range g.Dependents(at, Keeps) {
			for _, e := range g.out[from] {
				if e.To == at && e.Strength >= Keeps && !going[from] {
					p.Kept = append(p.Kept, Hold{from, e})
				}
			}
		}
	}
	return p
}

// Orphans are the edges, of at least the strength, that lead to what does not exist, in order.
func (g *Graph) Orphans(least Strength) []Hold {
	var out []Hold
	for _, key := range g.Keys() {
		for _, e := range g.out[key] {
			if e.Strength >= least && !g.Has(e.To) {
				out = append(out, Hold{key, e})
			}
		}
	}
	return out
}
