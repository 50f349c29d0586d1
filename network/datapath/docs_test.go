package datapath

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// tableCell is what a row of a table on the page begins with: `name`, or several.
var (
	tableCell = regexp.MustCompile("(?m)^\\| (`[a-z_]+`(?:, `[a-z_]+`)*)")
	quoted    = regexp.MustCompile("`([a-z_]+)`")
)

// TestThePageNamesEachProgramAndMap holds docs/design/network.md to the object file, both ways.
func TestThePageNamesEachProgramAndMap(t *testing.T) {
	page, err := os.ReadFile("../../docs/design/network.md")
	require.NoError(t, err)
	sections := regexp.MustCompile(`(?m)^## (.+)$`).FindAllSubmatchIndex(page, -1)
	named := func(section string) []string {
		for i, at := range sections {
			if string(page[at[2]:at[3]]) != section {
				continue
			}
			end := len(page)
			if i+1 < len(sections) {
				end = sections[i+1][0]
			}
			var names []string
			for _, row := range tableCell.FindAllSubmatch(page[at[1]:end], -1) {
				for _, name := range quoted.FindAllSubmatch(row[1], -1) {
					names = append(names, string(name[1]))
				}
			}
			return names
		}
		t.Fatalf("no section %q", section)
		return nil
	}
	spec, err := loadBpf()
	require.NoError(t, err)
	delete(spec.Maps, ".rodata") // the constants, which the page tells of apart
	delete(spec.Maps, ".bss")    // the tracer's notes of a run
	require.ElementsMatch(t, slices.Sorted(maps.Keys(spec.Maps)), named("Maps"))
	for _, program := range slices.Sorted(maps.Keys(spec.Programs)) {
		require.Contains(t, named("Programs"), program)
	}
	for _, name := range named("Programs") {
		if spec.Programs[name] == nil {
			require.Contains(t, reasonNames(), name, "in the section of programs, neither a program nor a reason to drop")
		}
	}
}

func reasonNames() []string {
	var names []string
	for _, r := range Reasons() {
		names = append(names, r.String())
	}
	return names
}
