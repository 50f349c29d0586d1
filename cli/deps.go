package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// inspecting is one run of `mni deps`.
type inspecting struct {
	*connection
	args    []string
	orphans bool
	output  string
}

func newDepsCommand(c *connection) *cobra.Command {
	d := &inspecting{connection: c}
	cmd := &cobra.Command{
		Use:   "deps [KIND NAME... | KIND/NAME...]",
		Short: "Show what depends on what",
		Long: `Show what depends on what: of everything in the namespace, or what single resources need and what
hangs on them, with what "mni delete --cascade" would delete.

One resource needs another when it cannot be without it, as a Subnet needs its Vpc, or says so in
spec.dependsOn; keeps another that stays while it is named in a field that can be changed, as a
Subnet its RouteTable; or only names it, which holds nobody up.`,
		Example: `  # Everything in the namespace
  mni deps

  # What a Vpc needs, and what hangs on it
  mni deps vpc/main

  # What names something that is not there
  mni deps --orphans`,
		SuggestFor:        []string{"dependencies", "graph", "tree"},
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			d.args = args
			return d.run(cmd.Context())
		}),
	}
	cmd.Flags().BoolVar(&d.orphans, "orphans", false, "only what needs or keeps something that does not exist")
	cmd.Flags().StringVarP(&d.output, "output", "o", "", "how to print: json")
	completeWords(cmd, "output", "json")
	return cmd
}

func (d *inspecting) run(ctx context.Context) error {
	switch {
	case d.output != "" && d.output != "json":
		return usagef("-o %s is not a format: json", d.output)
	case d.orphans && len(d.args) > 0:
		return usagef("--orphans looks at the whole namespace: name no resources")
	}
	if len(d.args) > 0 {
		return d.ofTargets(ctx)
	}
	namespace, _, err := d.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}
	r, err := d.related(ctx, namespace)
	if err != nil {
		return err
	}
	holds := r.holds()
	if d.orphans {
		holds = r.Orphans(graph.Keeps)
	}
	if d.output == "json" {
		return d.printJSON(r, holds)
	}
	if len(holds) == 0 {
		what := "nothing depends on anything"
		if d.orphans {
			what = "nothing is missing"
		}
		fmt.Fprintln(d.streams.ErrOut, what)
		return nil
	}
	return printHolds(d.streams.Out, r, holds)
}

// holds are all edges.
func (r *related) holds() []graph.Hold {
	var out []graph.Hold
	for _, key := range r.Keys() {
		edges := slices.Clone(r.Edges(key))
		slices.SortFunc(edges, func(a, b graph.Edge) int { return cmp.Compare(a.Field, b.Field) })
		for _, e := range edges {
			out = append(out, graph.Hold{From: key, Edge: e})
		}
	}
	return out
}

// printHolds prints a row for each edge.
func printHolds(out io.Writer, r *related, holds []graph.Hold) error {
	w := printers.GetNewTabWriter(out)
	fmt.Fprintln(w, "RESOURCE\tDOES\tOTHER\tFIELD\tEXISTS")
	for _, h := range holds {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", shown(h.From), h.Strength, shown(h.To), h.Field, r.exists(h.To))
	}
	return w.Flush()
}

func (r *related) exists(key graph.Key) string {
	switch {
	case !r.Has(key):
		return "no"
	case r.going[key]:
		return "going"
	}
	return "yes"
}

// relation is an edge in JSON.
type relation struct {
	From   string `json:"from"`
	Does   string `json:"does"`
	To     string `json:"to"`
	Field  string `json:"field"`
	Exists bool   `json:"exists"`
}

func (d *inspecting) printJSON(r *related, holds []graph.Hold) error {
	out := []relation{}
	for _, h := range holds {
		out = append(out, relation{shown(h.From), h.Strength.String(), shown(h.To), h.Field, r.Has(h.To)})
	}
	encoder := json.NewEncoder(d.streams.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(out)
}

// ofTargets prints for single resources what they name and what names them.
func (d *inspecting) ofTargets(ctx context.Context) error {
	targets, notFound := d.targets(ctx, &selection{args: d.args})
	for i, t := range targets {
		r, err := d.related(ctx, t.namespace)
		if err != nil {
			return err
		}
		key := keyOf(t)
		if !r.Has(key) {
			return fmt.Errorf("%s is no resource of a tenant: it depends on nothing, and nothing on it", t)
		}
		if d.output == "json" {
			var holds []graph.Hold
			for _, h := range r.holds() {
				if h.From == key || h.To == key {
					holds = append(holds, h)
				}
			}
			if err := d.printJSON(r, holds); err != nil {
				return err
			}
			continue
		}
		if i > 0 {
			fmt.Fprintln(d.streams.Out)
		}
		r.printTree(d.streams.Out, key)
	}
	return notFound
}

// printTree prints what an object names, what names it and so on, and what would go with it.
func (r *related) printTree(out io.Writer, key graph.Key) {
	fmt.Fprintln(out, shown(key))
	for _, e := range r.Edges(key) {
		missing := ""
		if state := r.exists(e.To); state != "yes" {
			missing = map[string]string{"no": ", which does not exist", "going": ", which is being deleted"}[state]
		}
		fmt.Fprintf(out, "  %s %s (%s)%s\n", e.Strength, shown(e.To), e.Field, missing)
	}
	seen := map[graph.Key]bool{key: true}
	var below func(graph.Key, string)
	below = func(at graph.Key, indent string) {
		for _, from := range r.Dependents(at, graph.Names) {
			for _, e := range r.Edges(from) {
				if e.To == at {
					fmt.Fprintf(out, "%s%s it: %s (%s)\n", indent, e.Strength, shown(from), e.Field)
				}
			}
			if !seen[from] {
				seen[from] = true
				below(from, indent+"  ")
			}
		}
	}
	below(key, "  ")
	if cycle := r.Cycle(key); cycle != nil {
		fmt.Fprintf(out, "  depends on itself: %s\n", strings.Join(names(cycle), " -> "))
	}
	if plan := r.PlanOf([]graph.Key{key}); len(plan.Order) > 1 || len(plan.Kept) > 0 {
		fmt.Fprintf(out, "deleting it with --cascade deletes, in this order: %s\n", strings.Join(names(plan.Order), ", "))
		for _, h := range plan.Kept {
			fmt.Fprintf(out, "%s goes when %s does not name it any more (%s)\n", shown(h.To), shown(h.From), h.Field)
		}
	}
}

func names(keys []graph.Key) []string {
	var out []string
	for _, key := range keys {
		out = append(out, shown(key))
	}
	return out
}
