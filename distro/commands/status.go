package commands

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

// report is what `mni status` tells of a cloud.
type report struct {
	supervisor.Status
	// Nodes are the nodes as the API server knows them.
	Nodes []cloud.NodeStatus `json:"nodes"`
	// NodesUnknown says why it cannot be told how the nodes are.
	NodesUnknown string `json:"nodesUnknown,omitempty"`
}

func statusCommand() *cobra.Command {
	var name, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how each part of a cloud and each node is",
		Long: `Say how each part of a cloud is, and whether each node is Ready: the API server's word.

The age of a part is how long it runs, that of a node how long it is as the table says. The exit code is 0 when all parts
and nodes are ready, 1 otherwise, also when the API server does not answer.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			printer, ok := map[string]func(io.Writer, report) error{"": printTables, "json": printJSON, "yaml": printYAML}[output]
			if !ok {
				return fmt.Errorf("--output %q: only json and yaml are known", output)
			}
			c, err := cloud.Find(name)
			if err != nil {
				return err
			}
			r, err := ask(cmd.Context(), c)
			if err != nil {
				return err
			}
			if err := printer(cmd.OutOrStdout(), r); err != nil {
				return err
			}
			return r.problem()
		},
	}
	instanceFlag(cmd, &name)
	cmd.Flags().StringVarP(&output, "output", "o", "", "output format: json, yaml")
	return cmd
}

// ask asks the supervisor how the parts are and the API server how the nodes are.
func ask(ctx context.Context, c cloud.Cloud) (report, error) {
	status, err := c.Client().Status(ctx, 0, true)
	if errors.Is(err, supervisor.ErrNotRunning) {
		return report{}, fmt.Errorf("cloud %q is not running: `mni up%s` starts it", c.Instance.Name, cloud.Flag(c.Instance.Name))
	}
	if err != nil {
		return report{}, err
	}
	r := report{Status: status, Nodes: []cloud.NodeStatus{}}
	if nodes, err := c.Nodes(ctx, status); err != nil {
		r.NodesUnknown = err.Error()
	} else {
		r.Nodes = nodes
	}
	return r, nil
}

// problem names what is not ready; nil when all is.
func (r report) problem() error {
	var not []string
	for _, p := range r.Parts {
		if !p.Ready() {
			not = append(not, p.Name)
		}
	}
	for _, n := range r.Nodes {
		if !n.Ready {
			not = append(not, "node "+n.Name)
		}
	}
	switch {
	case len(r.Parts) == 0:
		return errors.New("not ready: the cloud has no parts yet")
	case len(not) > 0:
		return fmt.Errorf("not ready: %s", strings.Join(not, ", "))
	case r.NodesUnknown != "":
		return errors.New(r.NodesUnknown)
	}
	return nil
}

func printJSON(out io.Writer, r report) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func printYAML(out io.Writer, r report) error {
	text, err := yaml.Marshal(r)
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

func printTables(out io.Writer, r report) error { return printStatus(out, r, time.Now()) }

// printStatus prints a line for each part and each node, and the sums.
func printStatus(out io.Writer, r report, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "PART\tSTATE\tRESTARTS\tAGE\tMEMORY\tMESSAGE")
	var memory int64
	for _, p := range append(slices.Clone(r.Parts), r.Guards...) {
		size := "-"
		if p.MemoryBytes > 0 {
			size = fmt.Sprintf("%d MiB", p.MemoryBytes>>20)
		}
		memory += p.MemoryBytes
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\n", p.Name, p.State, p.Restarts, age(p.Since, now), size, p.Message)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	sum := fmt.Sprintf("%d parts, %d MiB", len(r.Parts), memory>>20)
	if r.NodesUnknown != "" {
		_, err := fmt.Fprintf(out, "\nNodes: %s\n\n%s\n", r.NodesUnknown, sum)
		return err
	}
	ready := 0
	fmt.Fprintln(out)
	fmt.Fprintln(table, "NODE\tREADY\tAGE\tMESSAGE")
	for _, n := range r.Nodes {
		word := "no"
		if n.Ready {
			word = "yes"
			ready++
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", n.Name, word, age(n.Since, now), n.Message)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s; %d of %d nodes ready\n", sum, ready, len(r.Nodes))
	return err
}

// age is how long ago something was; "-" when it is not known.
func age(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(since))
}
