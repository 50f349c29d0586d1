package commands

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

func TestTheTailOfALogIsItsLastLines(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "node-1"), 0o700))
	long := strings.Repeat("x", 5000)
	for content, wants := range map[string]map[int]string{
		"a\nb\nc\n":               {0: "", 1: "c\n", 2: "b\nc\n", 3: "a\nb\nc\n", 9: "a\nb\nc\n", -1: "a\nb\nc\n"},
		"a\nb":                    {1: "b", 2: "a\nb"},
		"":                        {0: "", 1: ""},
		"a\n" + long + "\nlast\n": {1: "last\n", 2: long + "\nlast\n"},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "node-1/kubelet.log"), []byte(content), 0o600))
		for tail, want := range wants {
			var out bytes.Buffer
			require.NoError(t, PrintLog(t.Context(), &out, dir, "node-1/kubelet", tail, false))
			require.Equal(t, want, out.String(), "the last %d lines of %.20q", tail, content)
		}
	}
}

func TestAnUnknownPartIsAnsweredWithTheNamesThereAre(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "etcd.log"), nil, 0o600))
	for _, name := range []string{"etc", "../etcd", "/etc/passwd"} {
		require.ErrorContains(t, PrintLog(t.Context(), &bytes.Buffer{}, dir, name, -1, false), "etcd", name)
	}
}

// buffer can be written to and read at once.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestAFollowedLogGoesOnAfterItWasRotated(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "etcd.log")
	add := func(text string) {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	add("before\n")
	ctx, cancel := context.WithCancel(t.Context())
	var out buffer
	done := make(chan error, 1)
	go func() { done <- PrintLog(ctx, &out, dir, "etcd", -1, true) }()
	says := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.HasSuffix(out.String(), text) }, 10*time.Second, 10*time.Millisecond)
	}
	says("before\n")
	add("more\n")
	says("more\n")
	require.NoError(t, os.Truncate(file, 0))
	add("new\n")
	says("new\n")
	cancel()
	require.NoError(t, <-done)
}

func TestStatusIsOneLineAPart(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var out bytes.Buffer
	require.NoError(t, printStatus(&out, supervisor.Status{Parts: []supervisor.PartStatus{
		{Name: "etcd", State: supervisor.Ready, Since: now.Add(-90 * time.Minute), Restarts: 2, MemoryBytes: 100 << 20},
		{Name: "node-1/kubelet", State: supervisor.BackOff, Message: "exit status 1"},
	}}, now))
	require.Equal(t, `PART             STATE     RESTARTS   AGE   MEMORY    MESSAGE
etcd             Ready     2          90m   100 MiB   
node-1/kubelet   BackOff   0          -     -         exit status 1

2 parts, 100 MiB
`, out.String())
}

func TestTheSummarySaysHowToGoOn(t *testing.T) {
	var out bytes.Buffer
	printSummary(&out, "other", cloud.Summary{Nodes: 2, Kubeconfig: "/k", APIServer: "https://a", Warnings: []string{"watch out"}}, 12*time.Second)
	for _, want := range []string{`Cloud "other" is ready: 2 nodes, in 12.0 s`, "/k", "https://a", "Warning: watch out.", "mni down --instance other"} {
		require.Contains(t, out.String(), want)
	}
	out.Reset()
	printSummary(&out, "default", cloud.Summary{Already: true, Nodes: 1}, 0)
	require.Contains(t, out.String(), `Cloud "default" was running already, with 1 nodes.`)
	require.NotContains(t, out.String(), "--instance")
}
