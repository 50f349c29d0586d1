// Package docs holds documents; its test holds them together.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

func TestEveryLinkLeadsToAFile(t *testing.T) {
	pages := append(markdown(t, "."), filepath.Join("..", "README.md"))
	require.Greater(t, len(pages), 10)
	for _, page := range pages {
		content, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range link.FindAllStringSubmatch(string(content), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			require.FileExists(t, filepath.Join(filepath.Dir(page), match[1]), "%s links to %s", page, match[1])
		}
	}
}

func markdown(t *testing.T, dir string) []string {
	t.Helper()
	var pages []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			pages = append(pages, path)
		}
		return err
	}))
	return pages
}
