package commands

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mnicloud/mnicloud/distro/cloud"
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

func TestTheSummarySaysWhereTheCloudIs(t *testing.T) {
	var out bytes.Buffer
	printSummary(&out, "other", cloud.Summary{Nodes: 2, Kubeconfig: "/k", APIServer: "https://a", Gateway: "https://g", Authority: "/ca", Warnings: []string{"watch out"}}, 12*time.Second)
	require.Equal(t, `Cloud "other" is ready: 2 nodes, in 12.0 s.

Warning: watch out.

  API          https://g   (for users; its authority is in /ca)
  API server   https://a
  kubeconfig   /k
`, out.String())
	out.Reset()
	printSummary(&out, "default", cloud.Summary{Already: true, Nodes: 1}, 0)
	require.Contains(t, out.String(), `Cloud "default" was running already, with 1 nodes.`)
	require.Contains(t, out.String(), "mni uses it by default")
}

func TestTheHintsCallTheProgramAsTheUserDid(t *testing.T) {
	var out bytes.Buffer
	printHints(&out, "bin/mni", " --instance other")
	require.Equal(t, `
Try:
  bin/mni status --instance other
  bin/mni login --instance other --user admin
  bin/mni get --instance other containers -A
  bin/mni down --instance other
`, out.String())
}

func TestACommandThatIsStoppedSaysHowThingsAreAndWhatToDo(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var out bytes.Buffer
	cmd := &cobra.Command{Use: "mni", Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "bin/mni"}}
	cmd.SetErr(&out)
	cmd.SetContext(ctx)
	how := func() string { return halfStarted("other", true) }
	ifStopped(cmd, how)
	require.Empty(t, out.String(), "nothing stopped it")
	stop()
	ifStopped(cmd, how)
	require.Equal(t, "Stopped before cloud \"other\" was ready: its parts run on without this command; `bin/mni status --instance other` tells how they are, "+
		"`bin/mni up --instance other` waits for them, `bin/mni down --instance other` stops them.\n", out.String())
	require.Equal(t, "before cloud \"default\" ran: `mni up` starts anew, `mni down` removes what was made so far", halfStarted("default", false))
}

func TestALogOfNothingIsAnsweredWithThePartsToo(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "node-1"), 0o700))
	for _, part := range []string{"etcd", "node-1/kubelet"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, part+".log"), nil, 0o600))
	}
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "containers"}, "x")
	noCloud := &url.Error{Op: "Get", URL: "https://a", Err: errors.New("connection refused")}
	usage := errors.New("neither a Container nor a Pod")
	const parts = "there are: etcd, node-1/kubelet"
	for _, tc := range []struct {
		name string
		err  error
		told bool
	}{
		{"etc", notFound, true},
		{"etc", noCloud, true},
		{"node-1/kublet", usage, true},
		{"node-3/kubelet", usage, true},
		{"node-3/x", usage, false},
		{"pod/x", notFound, false},
		{"../x", usage, false},
		{"web", errors.New("container/web does not run yet"), false},
	} {
		err := orPart(dir, tc.name, tc.err)
		require.ErrorIs(t, err, tc.err)
		require.Equal(t, tc.told, strings.Contains(err.Error(), parts), "%s: %v", tc.name, err)
	}
	require.NoError(t, orPart(dir, "web", nil))
}
