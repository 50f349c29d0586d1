package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheReferenceHasAPageForEachCommand(t *testing.T) {
	folder := t.TempDir()
	stale := write(t, folder, "mni_gone.md", "")
	require.Zero(t, runMni(t.Context(), t.TempDir(), "", "docs", folder).code)
	require.NoFileExists(t, stale)
	index, err := os.ReadFile(filepath.Join(folder, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(index), "- [`mni apply`](mni_apply.md): Make resources as files declare them\n")
	require.Contains(t, string(index), "--namespace")
	require.NotContains(t, string(index), "mni docs")
	page, err := os.ReadFile(filepath.Join(folder, "mni_apply.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "# A file, a folder, standard input\nmni apply -f web.yaml\n")
	require.Contains(t, string(page), "--force-conflicts")
	require.FileExists(t, filepath.Join(folder, "mni_completion_bash.md"))
}
