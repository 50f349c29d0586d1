package cli

import (
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/resource"
)

// addFileFlags adds -f and -R.
func addFileFlags(cmd *cobra.Command, o *resource.FilenameOptions, usage string) {
	cmd.Flags().StringArrayVarP(&o.Filenames, "filename", "f", nil, usage+"; - is standard input")
	cmd.Flags().BoolVarP(&o.Recursive, "recursive", "R", false, "with -f, also take the folders in folders")
	if err := cmd.MarkFlagFilename("filename", "yaml", "yml", "json"); err != nil {
		panic(err)
	}
}

// dryRunServer is the value of --dry-run with which the API server checks everything and keeps nothing.
const dryRunServer = "server"

// addDryRunFlag adds --dry-run, whose value alone is "server".
func addDryRunFlag(cmd *cobra.Command, value *string) {
	cmd.Flags().StringVar(value, "dry-run", "none", "none, or server: the cloud checks everything and changes nothing")
	cmd.Flags().Lookup("dry-run").NoOptDefVal = dryRunServer
	check := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if *value != "none" && *value != dryRunServer {
			return usagef("--dry-run=%s is not possible: none or server", *value)
		}
		if check != nil {
			return check(cmd, args)
		}
		return nil
	}
}

// dryRunOption is what the API server wants to be told.
func dryRunOption(value string) []string {
	if value == dryRunServer {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// noArguments refuses arguments with a hint that has a place for the first.
func noArguments(hint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef(hint, args[0])
		}
		return nil
	}
}
