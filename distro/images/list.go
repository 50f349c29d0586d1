package images

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/distro/registry"
)

func listCommand(access *accessFlags) *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:     "ls [PREFIX...]",
		Aliases: []string{"list"},
		Short:   "List the images in the registry",
		RunE: func(cmd *cobra.Command, args []string) error {
			write, ok := listFormats[format]
			if !ok {
				return fmt.Errorf("--output %q: one of table, wide, json, yaml and name", format)
			}
			remote, err := access.dial(cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer remote.Close()
			listed, err := remote.List(cmd.Context(), args...)
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), listed)
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "table", "table, wide, json, yaml or name")
	return command
}

// complete are the images in the registry, NAME:TAG, whose names begin with the prefix, without those of args. A shell that
// completes has nobody to tell errors.
func (a *accessFlags) complete(cmd *cobra.Command, args []string, prefix string) []string {
	remote, err := a.dial(strings.NewReader(""))
	if err != nil {
		return nil
	}
	defer remote.Close()
	listed, err := remote.List(cmd.Context())
	if err != nil {
		return nil
	}
	var found []string
	for _, image := range listed {
		name := image.Name + ":" + image.Tag
		if strings.HasPrefix(name, prefix) && !slices.Contains(args, name) {
			found = append(found, name)
		}
	}
	return found
}

var listFormats = map[string]func(io.Writer, []Listed) error{
	"table": func(out io.Writer, listed []Listed) error { return writeTable(out, listed, false) },
	"wide":  func(out io.Writer, listed []Listed) error { return writeTable(out, listed, true) },
	"json": func(out io.Writer, listed []Listed) error {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(listed)
	},
	"yaml": func(out io.Writer, listed []Listed) error {
		content, err := yaml.Marshal(listed)
		if err != nil {
			return err
		}
		_, err = out.Write(content)
		return err
	},
	"name": func(out io.Writer, listed []Listed) error {
		for _, image := range listed {
			fmt.Fprintf(out, "%s/%s:%s\n", registry.Name, image.Name, image.Tag)
		}
		return nil
	},
}

func writeTable(out io.Writer, listed []Listed, wide bool) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tTAG\tDIGEST\tSIZE")
	for _, image := range listed {
		digest := image.Digest
		if !wide && len(digest) > 19 {
			digest = digest[:19] // sha256: and 12 digits, as people know it
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", image.Name, image.Tag, digest, bytesText(image.SizeBytes))
	}
	return table.Flush()
}

// bytesText is a size in decimal units, as other image tools print it.
func bytesText(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
