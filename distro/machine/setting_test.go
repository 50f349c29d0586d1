package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// newSwitch is a setting that is a file with 0 or 1 in it.
func newSwitch(t *testing.T, value string) (Setting, func() string) {
	file := filepath.Join(t.TempDir(), "ip_forward")
	require.NoError(t, os.WriteFile(file, []byte(value+"\n"), 0o600))
	s := forwarding(file)
	s.Dir = t.TempDir()
	return s, func() string {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		return strings.TrimSpace(string(content))
	}
}

func TestASettingIsPutBackWhenTheLastInstanceGoes(t *testing.T) {
	s, value := newSwitch(t, "0")
	require.NoError(t, s.Acquire("a"))
	require.NoError(t, s.Acquire("b"))
	require.NoError(t, s.Acquire("b"))
	require.Equal(t, "1", value())
	require.NoError(t, s.Release("a"))
	require.Equal(t, "1", value(), "b still needs it")
	require.NoError(t, s.Release("b"))
	require.Equal(t, "0", value())
	require.NoError(t, s.Release("b"), "a second release is nothing")
}

func TestASettingThatWasOnBeforeStaysOn(t *testing.T) {
	s, value := newSwitch(t, "1")
	require.NoError(t, s.Acquire("a"))
	require.NoError(t, s.Release("a"))
	require.Equal(t, "1", value())
	require.NoError(t, s.Release("never-started"))
	require.Equal(t, "1", value())
}

func TestWhatWasRememberedBeforeARebootCountsNoMore(t *testing.T) {
	s, value := newSwitch(t, "1")
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir, "forwarding.json"), []byte(`{"boot":"another","users":["a"]}`), 0o600))
	require.NoError(t, s.Acquire("a"))
	require.NoError(t, s.Release("a"))
	require.Equal(t, "1", value(), "in this boot the machine's owner had turned it on")
}
