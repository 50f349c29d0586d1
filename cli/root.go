package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// Exit codes of `mni`.
const (
	// ExitOK: everything asked for was done.
	ExitOK = 0
	// ExitFailure: something asked for could not be done.
	ExitFailure = 1
	// ExitUsage: the command line cannot be understood; nothing was done.
	ExitUsage = 2
)

// Groups of commands in `mni help`.
const (
	groupOwner  = "owner"
	groupTenant = "tenant"
	groupOther  = "other"
)

// New is the root command `mni` with the tenants' commands. version is printed by `mni version`.
func New(version string, streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:   "mni",
		Short: "mNi Cloud on the command line",
		Long: `mNi Cloud on the command line: VPCs, subnets and containers, declared in YAML.

A cloud on this machine starts with "mni up". Tenants then declare what they want with
"mni apply -f" and look at it with "mni get" and "mni describe".

Exit codes: 0 done, 1 something failed, 2 the command line was not understood.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.AddGroup(
		&cobra.Group{ID: groupOwner, Title: "Cloud owner's commands:"},
		&cobra.Group{ID: groupTenant, Title: "Tenants' commands:"},
		&cobra.Group{ID: groupOther, Title: "Other commands:"},
	)
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	add(root, groupOther, newVersionCommand(version))
	return root
}

// AddOwnerCommands adds commands of the machine's owner to the root command.
func AddOwnerCommands(root *cobra.Command, commands ...*cobra.Command) {
	add(root, groupOwner, commands...)
}

func add(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// Execute runs the command that args name, prints its error if there is one and returns the exit code.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	markUsageErrors(root)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(root.ErrOrStderr(), "error: %v\n", err)
	var usage *usageError
	if errors.As(err, &usage) || cmd == root {
		fmt.Fprintf(root.ErrOrStderr(), "Run '%s --help' for usage.\n", cmd.CommandPath())
		return ExitUsage
	}
	return ExitFailure
}

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// markUsageErrors makes wrong flags and arguments of every command usage errors.
func markUsageErrors(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return &usageError{err}
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		markUsageErrors(c)
	}
}

func newVersionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of mni",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "mni %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		},
	}
}
