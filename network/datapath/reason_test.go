package datapath

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryReasonSaysWhatItMeansAndWhatToDo(t *testing.T) {
	names := map[string]bool{}
	for _, r := range Reasons() {
		require.Regexp(t, regexp.MustCompile(`^[a-z0-9_]+$`), r.String())
		require.False(t, names[r.String()], "two reasons are named %s", r)
		names[r.String()] = true
		require.NotEmpty(t, r.Meaning())
		require.NotContains(t, r.Meaning(), "another version")
		require.Equal(t, r.Expected(), r.Remedy() == "", "%s: what healthy traffic meets needs no remedy, all else does", r)
	}
	strange := Reason(999)
	require.Equal(t, "reason_999", strange.String())
	require.Empty(t, strange.Remedy())
}
