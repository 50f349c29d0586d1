// Package documented compares what programs have with what the documents say of it.
package documented

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/test/apiserver"
)

var (
	described  = regexp.MustCompile(`fqName: "(mni_[a-z_]+)"`)
	documented = regexp.MustCompile("`(mni_[a-z_]+)`")
)

// Metrics demands that the pages about the network list, in the table under a program's name, exactly the metrics of the cloud's own
// that the collector has.
func Metrics(t *testing.T, program string, collector prometheus.Collector) {
	t.Helper()
	descs := make(chan *prometheus.Desc, 1000)
	collector.Describe(descs)
	close(descs)
	var have []string
	for desc := range descs {
		if m := described.FindStringSubmatch(desc.String()); m != nil {
			have = append(have, m[1])
		}
	}
	slices.Sort(have)
	for _, page := range []string{"docs/howto/network.md", "docs/ja/howto/network.md"} {
		text, err := os.ReadFile(filepath.Join(apiserver.Root(), page))
		require.NoError(t, err)
		_, section, found := strings.Cut(string(text), "\n### "+program+"\n")
		require.True(t, found, "%s has no part about %s", page, program)
		section, _, _ = strings.Cut(section, "\n### ")
		var said []string
		for line := range strings.Lines(section) {
			if !strings.HasPrefix(line, "| `mni_") {
				continue
			}
			name, _, _ := strings.Cut(line[1:], "|")
			for _, m := range documented.FindAllStringSubmatch(name, -1) {
				said = append(said, m[1])
			}
		}
		slices.Sort(said)
		require.Equal(t, have, said, "%s: what %s has, and what the page says", page, program)
	}
}
