package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// withDependents shows what hangs on the targets. With --cascade, or when who is asked says so, it adds that and puts all in the order in
// which it goes.
func (d *deleting) withDependents(ctx context.Context, targets []*target) ([]*target, error) {
	byNamespace := map[string][]graph.Key{}
	chosen := map[graph.Key]*target{}
	for _, t := range targets {
		if ofCloud(t.mapping.GroupVersionKind.Group) && namespaced(t.mapping) {
			key := keyOf(t)
			byNamespace[t.namespace] = append(byNamespace[t.namespace], key)
			chosen[key] = t
		}
	}
	var all, more []*target
	var said []string
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		r, err := d.related(ctx, namespace)
		if err != nil && d.cascade {
			return nil, err
		}
		if err != nil {
			fmt.Fprintf(d.streams.ErrOut, "what depends on them could not be read: %v\n", err)
			return targets, nil
		}
		plan := r.PlanOf(byNamespace[namespace])
		for _, key := range plan.Order {
			t, ok := chosen[key]
			if !ok {
				if t, err = d.targetOf(r, key); err != nil {
					return nil, err
				}
				more = append(more, t)
			}
			all = append(all, t)
		}
		said = append(said, r.hangsOn(plan, chosen)...)
	}
	if len(said) > 0 {
		fmt.Fprintln(d.streams.ErrOut, strings.Join(said, "\n"))
	}
	if len(more) == 0 {
		return targets, nil
	}
	if !d.cascade {
		cascade, err := d.askCascade(ctx, more)
		if err != nil || !cascade {
			return targets, err
		}
	}
	for _, t := range targets {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return all, nil
}

// hangsOn says of each object that is to go, whether chosen or not, what else keeps it.
func (r *related) hangsOn(plan graph.Plan, chosen map[graph.Key]*target) []string {
	var said []string
	for _, key := range slices.Backward(plan.Order) {
		var needing []string
		for _, from := range r.Dependents(key, graph.Needs) {
			if chosen[from] == nil {
				needing = append(needing, shown(from))
			}
		}
		if len(needing) > 0 {
			said = append(said, fmt.Sprintf("%s is needed by %s", shown(key), strings.Join(needing, ", ")))
		}
	}
	for _, h := range plan.Kept {
		said = append(said, fmt.Sprintf("%s goes when %s does not name it any more (%s)", shown(h.To), shown(h.From), h.Field))
	}
	return said
}

// askCascade asks, where there is somebody to ask, whether what needs the targets goes too. Elsewhere they are only asked to go, and wait.
func (d *deleting) askCascade(ctx context.Context, more []*target) (bool, error) {
	if _, ok := d.terminal(); !ok || d.yes || d.dryRun == dryRunServer {
		fmt.Fprintln(d.streams.ErrOut, "they go when that is deleted; --cascade deletes it too")
		return false, nil
	}
	var list []string
	for _, t := range more {
		list = append(list, t.String())
	}
	answer, err := d.ask(ctx, fmt.Sprintf("Delete %s too? [y/N] ", strings.Join(list, ", ")))
	if err != nil {
		return false, err
	}
	if answer = strings.ToLower(answer); answer == "y" || answer == "yes" {
		return true, nil
	}
	return false, errors.New("nothing was deleted: delete those first, or give --cascade")
}

// targetOf is an object of the graph to delete.
func (d *deleting) targetOf(r *related, key graph.Key) (*target, error) {
	mapper, err := d.mapper()
	if err != nil {
		return nil, err
	}
	mapping, err := mapper.RESTMapping(key.GroupKind, r.kinds[key.GroupKind].Version)
	if err != nil {
		return nil, err
	}
	return &target{mapping: mapping, namespace: key.Namespace, name: key.Name, uid: r.uids[key], client: clientFor(r.client, mapping, key.Namespace)}, nil
}
