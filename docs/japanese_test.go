package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAJapanesePageSaysAsMuchAsTheEnglishOne compares what can be compared without understanding: headings, lead-ins of
// paragraphs, rows of tables, and what stands in code blocks, comments apart.
func TestAJapanesePageSaysAsMuchAsTheEnglishOne(t *testing.T) {
	pages := []string{"quickstart.md", "concepts.md", "machine.md"}
	howto, err := filepath.Glob("howto/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, howto)
	english := map[string]string{"README.md": filepath.Join("..", "README.md")}
	for _, page := range append(pages, howto...) {
		english[page] = page
	}
	for page, original := range english {
		t.Run(page, func(t *testing.T) {
			want, got := outlineOf(t, original), outlineOf(t, filepath.Join("ja", page))
			require.Equal(t, want, got, "docs/ja/%s is behind %s, or before it", page, original)
		})
	}
}

// outline is how much a page says.
type outline struct {
	headings []int // their levels, in order
	rows     int   // of tables
	leadIns  int   // paragraphs that begin in bold, in pages that have no other headings
	code     string
}

var (
	fence   = regexp.MustCompile("(?s)(?:^|\n)```[a-z]*\n(.*?\n)```")
	comment = regexp.MustCompile(`(?m) *#.*$`)
)

func outlineOf(t *testing.T, page string) outline {
	t.Helper()
	content, err := os.ReadFile(page)
	require.NoError(t, err)
	var o outline
	for _, block := range fence.FindAllStringSubmatch(string(content), -1) {
		o.code += comment.ReplaceAllString(block[1], "") + "\n"
	}
	for line := range strings.Lines(fence.ReplaceAllString(string(content), "")) {
		switch {
		case strings.HasPrefix(line, "#"):
			o.headings = append(o.headings, len(line)-len(strings.TrimLeft(line, "#")))
		case strings.HasPrefix(line, "|"):
			o.rows++
		case strings.HasPrefix(line, "**"):
			o.leadIns++
		}
	}
	if len(o.headings) > 1 {
		o.leadIns = 0
	}
	return o
}
