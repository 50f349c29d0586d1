package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// netOutput is how `mni net` prints.
type netOutput string

const (
	asTable netOutput = "table"
	asJSON  netOutput = "json"
	asYAML  netOutput = "yaml"
)

var netOutputs = []string{string(asTable), string(asJSON), string(asYAML)}

// outputFlag adds -o.
func outputFlag(cmd *cobra.Command, o *netOutput) {
	*o = asTable
	cmd.Flags().VarP(o, "output", "o", "how to print: "+strings.Join(netOutputs, ", "))
	completeWords(cmd, "output", netOutputs...)
}

// String implements pflag.Value.
func (o *netOutput) String() string { return string(*o) }

// Set implements pflag.Value.
func (o *netOutput) Set(s string) error {
	if !slices.Contains(netOutputs, s) {
		return fmt.Errorf("it is one of %s", strings.Join(netOutputs, ", "))
	}
	*o = netOutput(s)
	return nil
}

// Type implements pflag.Value.
func (o *netOutput) Type() string { return "format" }

// write prints a value, or what table makes of it.
func (o netOutput) write(out io.Writer, value any, table func(*tabwriter.Writer)) error {
	switch o {
	case asJSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case asYAML:
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	default:
		w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		table(w)
		return w.Flush()
	}
}

// row prints the cells of a table's row, "-" for empty ones.
func row(w io.Writer, cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = fmt.Sprint(cell)
		if texts[i] == "" {
			texts[i] = "-"
		}
	}
	fmt.Fprintln(w, strings.Join(texts, "\t"))
}

// discard takes what nobody is to see.
type discard struct{}

// Write implements io.Writer.
func (discard) Write(p []byte) (int, error) { return len(p), nil }

func startingWith(words []string, prefix string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, prefix) })
}
