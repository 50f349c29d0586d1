package reports

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

var (
	address = regexp.MustCompile(`https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+`)
	named   = regexp.MustCompile("`((?:Test|Benchmark)\\w+)`")
	defined = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)\(`)
)

// comments are those that stand directly before each test of the project, by its name.
func comments(t *testing.T) map[string]string {
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin" || entry.Name() == "build"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		text := string(data)
		for _, at := range defined.FindAllStringSubmatchIndex(text, -1) {
			before := text[:at[0]]
			comment := before[strings.LastIndex(before, "\n\n")+1:]
			found[text[at[2]:at[3]]] += comment
		}
		return nil
	}))
	return found
}

func TestEachReportHasATestThatCarriesItsAddress(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "design", "reports.md"))
	require.NoError(t, err)
	tests := comments(t)
	rows := 0
	for line := range strings.Lines(string(page)) {
		reports := address.FindAllString(line, -1)
		if !strings.HasPrefix(line, "|") || len(reports) == 0 {
			continue
		}
		rows++
		names := named.FindAllStringSubmatch(line, -1)
		require.NotEmpty(t, names, "no test is named for %v", reports)
		for _, name := range names {
			require.Contains(t, tests, name[1], "the page names a test that does not exist")
			for _, report := range reports {
				require.Regexp(t, regexp.QuoteMeta(report)+`\b`, tests[name[1]], "%s does not carry the report's address", name[1])
			}
		}
	}
	require.Greater(t, rows, 20)
}
