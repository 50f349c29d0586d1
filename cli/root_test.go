package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	utilexec "k8s.io/utils/exec"
)

func TestHelpShowsTheCommandsInGroups(t *testing.T) {
	var out strings.Builder
	root := New("v0", nil, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	AddOwnerCommands(root, &cobra.Command{Use: "up", Short: "Start a cloud", Run: func(*cobra.Command, []string) {}})
	require.Equal(t, ExitOK, Execute(t.Context(), root, nil))
	owner, rest, found := strings.Cut(out.String(), "Tenants' commands:")
	require.True(t, found)
	tenants, other, found := strings.Cut(rest, "Other commands:")
	require.True(t, found)
	require.Contains(t, owner, "  up ")
	for _, command := range []string{"apply", "get", "describe", "delete", "wait", "logs", "exec", "explain", "api-resources"} {
		require.Contains(t, tenants, "  "+command+" ")
	}
	for _, command := range []string{"version", "completion", "help"} {
		require.Contains(t, other, "  "+command+" ")
	}
}

func TestOwnersCommandsDoNotShowTenantsFlags(t *testing.T) {
	var out strings.Builder
	root := New("v0", nil, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	AddOwnerCommands(root, &cobra.Command{Use: "up", Short: "Start a cloud", Run: func(*cobra.Command, []string) {}})
	require.Equal(t, ExitOK, Execute(t.Context(), root, []string{"up", "--help"}))
	require.Contains(t, out.String(), "--instance")
	require.NotContains(t, out.String(), "--namespace")
	out.Reset()
	require.Equal(t, ExitOK, Execute(t.Context(), root, []string{"get", "--help"}))
	require.Contains(t, out.String(), "--namespace")
}

func TestExitCodes(t *testing.T) {
	failing := func(err error) output {
		var out, errOut strings.Builder
		root := New("v0", nil, genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
		root.AddCommand(&cobra.Command{Use: "fail", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error { return err }})
		code := Execute(t.Context(), root, []string{"fail"})
		return output{code: code, stdout: out.String(), stderr: errOut.String()}
	}
	require.Equal(t, output{}, failing(nil))
	require.Equal(t, output{code: 1, stderr: "error: a\nerror: b\n"}, failing(errors.Join(errors.New("a"), errors.New("b"))))
	require.Equal(t, output{code: 1}, failing(errShown))
	require.Equal(t, output{code: 2, stderr: "error: what\nRun 'mni fail --help' for usage.\n"}, failing(usagef("what")))
	require.Equal(t, output{code: 7}, failing(utilexec.CodeExitError{Err: errors.New("command terminated"), Code: 7}))
	for _, args := range [][]string{{"nonsense"}, {"--nonsense"}, {"version", "x"}, {"logs"}, {"logs", "a", "b"}, {"exec", "web"}, {"exec", "web", "ls"}, {"exec", "--", "ls"}, {"apply"}} {
		o := runMni(t.Context(), t.TempDir(), "", args...)
		require.Equal(t, ExitUsage, o.code, args)
		require.Regexp(t, `^error: (?s:.*)\nRun 'mni.* --help' for usage.\n$`, o.stderr)
	}
}

func TestVersion(t *testing.T) {
	require.Regexp(t, `^mni v0 \(go.*, linux/.*\)\n$`, runMni(t.Context(), t.TempDir(), "", "version").stdout)
}

func TestAFlagThatIsNoNumberIsToldInWords(t *testing.T) {
	said := func(args ...string) output {
		var out, errOut strings.Builder
		root := New("v0", nil, genericiooptions.IOStreams{Out: &out, ErrOut: &errOut})
		count := &cobra.Command{Use: "count", Run: func(*cobra.Command, []string) {}}
		count.Flags().Int("nodes", 1, "")
		count.Flags().Uint16("port", 1, "")
		root.AddCommand(count)
		return output{code: Execute(t.Context(), root, append([]string{"count"}, args...)), stdout: out.String(), stderr: errOut.String()}
	}
	const usage = "\nRun 'mni count --help' for usage.\n"
	for arg, want := range map[string]string{
		"--nodes=abc":                   `error: invalid argument "abc" for "--nodes" flag: it must be a whole number`,
		"--nodes=1.5":                   `error: invalid argument "1.5" for "--nodes" flag: it must be a whole number`,
		"--nodes=99999999999999999999":  `error: invalid argument "99999999999999999999" for "--nodes" flag: the number is too large`,
		"--port=-1":                     `error: invalid argument "-1" for "--port" flag: it must be a whole number that is not negative`,
		"--port=70000":                  `error: invalid argument "70000" for "--port" flag: the number is too large`,
		`--nodes="strconv.ParseInt: pa`: `error: invalid argument "\"strconv.ParseInt: pa" for "--nodes" flag: it must be a whole number`,
	} {
		require.Equal(t, output{code: ExitUsage, stderr: want + usage}, said(arg), arg)
	}
}

func TestTheVersionIsPrintedByFlagAndCommand(t *testing.T) {
	command := runMni(t.Context(), t.TempDir(), "", "version")
	require.Equal(t, ExitOK, command.code)
	require.Regexp(t, `^mni v0 \(go\S+, linux/\w+\)\n$`, command.stdout)
	require.Equal(t, command, runMni(t.Context(), t.TempDir(), "", "--version"))
}
