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
