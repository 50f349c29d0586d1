package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func TestMessagesCallTheProgramAsTheUserDid(t *testing.T) {
	folder := t.TempDir()
	program := write(t, folder, "mni", "#!/bin/sh\n")
	require.NoError(t, os.Chmod(program, 0o755))
	called := func(as string) string {
		var out strings.Builder
		root := newRoot("v0", folders{state: t.TempDir()}, nil, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
		CallAs(root, as)
		t.Setenv("KUBECONFIG", "")
		t.Setenv("HOME", folder)
		require.Equal(t, ExitFailure, Execute(t.Context(), root, []string{"get", "vpcs"}))
		require.Equal(t, ExitUsage, Execute(t.Context(), root, []string{"get", "--nonsense"}))
		return out.String()
	}
	t.Setenv("PATH", t.TempDir())
	said := called(program)
	require.Contains(t, said, "run `"+program+" up`")
	require.Contains(t, said, "Run '"+program+" get --help' for usage.")
	require.Contains(t, called("mni"), "run `mni up`")

	t.Setenv("PATH", folder)
	said = called(program)
	require.Contains(t, said, "run `mni up`", "the plain name runs the same program")
	require.Contains(t, said, "Run 'mni get --help' for usage.")

	other := write(t, t.TempDir(), "mni", "#!/bin/sh\n")
	require.NoError(t, os.Chmod(other, 0o755))
	t.Setenv("PATH", filepath.Dir(other))
	require.Contains(t, called(program), "run `"+program+" up`", "the plain name runs another program")
}
