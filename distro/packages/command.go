package packages

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// Command is `install`: it installs the packages that the machine lacks.
func Command() *cobra.Command {
	var development, list bool
	cmd := &cobra.Command{
		Use:   "install",
		Short: "Install the Debian packages the cloud needs and this machine lacks",
		Long: "Install the Debian packages the cloud needs and this machine lacks.\n\n" +
			"No service is started or enabled, no package is removed, and programs that came another way are used as they are.",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			wanted := Runtime()
			if development {
				wanted = append(wanted, Development()...)
			}
			if list {
				return printList(cmd, wanted)
			}
			got, err := Install(cmd.Context(), wanted, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			for _, p := range got {
				fmt.Fprintf(cmd.OutOrStdout(), "installed %s: %s\n", p.Name, p.Reason)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&development, "development", false, "also what building and testing the cloud needs")
	cmd.Flags().BoolVar(&list, "list", false, "only show the packages, what they are for and whether they are there")
	return cmd
}

// printList shows every package, whether the machine has it, and why the cloud wants it.
func printList(cmd *cobra.Command, wanted []Package) error {
	lacking, err := Missing(cmd.Context(), wanted)
	if err != nil {
		return err
	}
	absent := map[string]bool{}
	for _, p := range lacking {
		absent[p.Name] = true
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "PACKAGE\tSTATE\tREASON")
	for _, p := range wanted {
		state := "present"
		if absent[p.Name] {
			state = "missing"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, state, p.Reason)
	}
	return w.Flush()
}
