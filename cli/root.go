package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	utilexec "k8s.io/utils/exec"
)

// Exit codes of `mni`.
const (
	// ExitOK: everything asked for was done.
	ExitOK = 0
	// ExitFailure: something asked for could not be done.
	ExitFailure = 1
	// ExitUsage: the command line cannot be understood; nothing was done.
	ExitUsage = 2
	// ExitInterrupted: stopped by a signal.
	ExitInterrupted = 130
)

// Groups of commands in `mni help`.
const (
	groupOwner  = "owner"
	groupTenant = "tenant"
	groupLogin  = "login"
	groupOther  = "other"
)

// New is the root command `mni` with the tenants' commands and `mni net`, which looks at the members of the network that members
// finds on this machine. version is printed by `mni version`.
func New(version string, members Members, streams genericiooptions.IOStreams) *cobra.Command {
	return newRoot(version, folders{state: stateDir, run: runDir}, members, streams)
}

func newRoot(version string, machine folders, members Members, streams genericiooptions.IOStreams) *cobra.Command {
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
		Version:           version,
	}
	root.SetVersionTemplate(versionLine(version))
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.AddGroup(
		&cobra.Group{ID: groupOwner, Title: "Cloud owner's commands:"},
		&cobra.Group{ID: groupTenant, Title: "Tenants' commands:"},
		&cobra.Group{ID: groupLogin, Title: "Who you are:"},
		&cobra.Group{ID: groupOther, Title: "Other commands:"},
	)
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		defer hideTenantsFlags(cmd)()
		help(cmd, args)
	})
	root.SetHelpCommandGroupID(groupOther)
	root.SetCompletionCommandGroupID(groupOther)
	c := newConnection(root, version, machine, streams)
	c.completeFlags(root)
	add(root, groupTenant,
		newGetCommand(c),
		newDescribeCommand(c),
		newApplyCommand(c),
		newDiffCommand(c),
		newEditCommand(c),
		newDeleteCommand(c),
		newWaitCommand(c),
		newDepsCommand(c),
		newLogsCommand(c),
		newExecCommand(c),
		newAuditCommand(c),
		newExplainCommand(c),
		newAPIResourcesCommand(c),
	)
	for _, cmd := range root.Commands() {
		shorthand := "t"
		if cmd.Flags().ShorthandLookup(shorthand) != nil {
			shorthand = ""
		}
		c.addTenantFlag(cmd, shorthand)
	}
	add(root, groupLogin, newLoginCommand(c), newLogoutCommand(c), newWhoAmICommand(c), newPasswordCommand(c), newTenantCommand(c), newUserCommand(c),
		newServiceAccountCommand(c), newTokenCommand(c), newKubeconfigCommand(c))
	root.AddCommand(newCredentialCommand(c))
	add(root, groupOwner, newNetworkCommand(c, members))
	add(root, groupOther, newVersionCommand(version), newReferenceCommand())
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

// hideTenantsFlags keeps the flags that choose a kubeconfig and a namespace out of the help of the owner's commands, until
// the returned function is called.
func hideTenantsFlags(cmd *cobra.Command) (show func()) {
	top := cmd
	for top.HasParent() && top.Parent().HasParent() {
		top = top.Parent()
	}
	if top.GroupID != groupOwner {
		return func() {}
	}
	set := func(hidden bool) {
		for _, name := range tenantsFlags {
			if flag := cmd.Root().PersistentFlags().Lookup(name); flag != nil {
				flag.Hidden = hidden
			}
		}
	}
	set(true)
	return func() { set(false) }
}

// Execute runs the command that args name, prints its errors and returns the exit code: one of the Exit constants, or that
// of the command which `mni exec` ran.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	markUsageErrors(root)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	var remote utilexec.ExitError
	var usage *usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &remote):
		return remote.ExitStatus()
	case ctx.Err() != nil:
		return ExitInterrupted
	}
	printError(root, root.ErrOrStderr(), err)
	if errors.As(err, &usage) || cmd == root {
		fmt.Fprintf(root.ErrOrStderr(), "Run '%s --help' for usage.\n", cmd.CommandPath())
		return ExitUsage
	}
	return ExitFailure
}

// errShown is returned by a command that has already printed what went wrong.
var errShown = errors.New("failed")

// printError prints an error, or each of several. Commands to run stand in it as the user calls this program.
func printError(root *cobra.Command, w io.Writer, err error) {
	// Only the outermost error may be several.
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range several.Unwrap() {
			printError(root, w, e)
		}
		return
	}
	if !errors.Is(err, errShown) {
		fmt.Fprintf(w, "error: %s\n", strings.ReplaceAll(err.Error(), "`mni ", "`"+root.CommandPath()+" "))
	}
}

// parsed is what the library says of a flag's value that is no number.
var parsed = regexp.MustCompile(`strconv\.Parse(U?)(?:int|Int): parsing ".*": (invalid syntax|value out of range)`)

// flagError says of a flag that takes a number what that is, without the names of the library's functions.
func flagError(err error) error {
	m := parsed.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	want := "it must be a whole number"
	if m[1] != "" {
		want += " that is not negative"
	}
	if m[2] == "value out of range" {
		want = "the number is too large"
	}
	return errors.New(parsed.ReplaceAllLiteralString(err.Error(), want))
}

// versionLine is what `mni version` and `mni --version` print.
func versionLine(version string) string {
	return fmt.Sprintf("mni %s (%s, %s/%s)\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// markUsageErrors makes wrong flags and arguments of every command usage errors.
func markUsageErrors(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{flagError(err)} })
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
			fmt.Fprint(cmd.OutOrStdout(), versionLine(version))
		},
	}
}
