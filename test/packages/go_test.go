//go:build e2e

package packages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnOldGoIsRefusedWithTheRemedy(t *testing.T) {
	for version, want := range map[string]string{
		"go1.19.8":              "Go 1.19.8 is too old: install Go 1.26",
		"go1.26":                "Go 1.26 is too old",
		"go1.26.8":              "",
		"go1.27.0 X:experiment": "",
		"":                      "no Go toolchain found: install Go 1.26",
	} {
		t.Run(version, func(t *testing.T) {
			fake := filepath.Join(t.TempDir(), "go")
			if version != "" {
				require.NoError(t, os.WriteFile(fake, fmt.Appendf(nil, "#!/bin/sh\necho '%s'\n", version), 0o755))
			}
			out, err := exec.Command(filepath.Join(repository(), "hack", "go-check"), fake).CombinedOutput()
			if want == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			require.Error(t, err)
			require.Contains(t, string(out), want)
		})
	}
}
