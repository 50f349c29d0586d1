package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/cli/account"
)

// auditAt is an entry of a local time of day.
func auditAt(hour, minute int, e account.AuditEntry) account.AuditEntry {
	e.Time = time.Date(2026, 11, 30, hour, minute, 0, 0, time.Local)
	return e
}

func printed(o *auditOptions, out *bytes.Buffer, ask func(*account.AuditQuery) ([]account.AuditEntry, string, error)) *trail {
	return &trail{o: o, table: tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.RememberWidths), ask: ask}
}

func TestAnAuditTrailIsPrintedWithoutWhatCouldMoveACursor(t *testing.T) {
	since := time.Date(2026, 11, 30, 9, 58, 0, 0, time.Local)
	entries := []account.AuditEntry{
		auditAt(10, 2, account.AuditEntry{User: "ada", Verb: "create", Resource: "vpcs", Name: "web", Code: 201, Session: "0123", Source: "192.0.2.7"}),
		auditAt(10, 1, account.AuditEntry{User: "eve", Verb: "delete", Resource: "vpcs", Name: "\x1b[2J", Code: 403, Reason: "Forbidden", Count: 12, Since: &since, Token: "4567"}),
		auditAt(10, 0, account.AuditEntry{User: "bob", Verb: "exec", Resource: "pods", Name: "web", Session: "89ab"}),
	}
	var out bytes.Buffer
	require.NoError(t, printed(&auditOptions{}, &out, nil).tell(entries, true))
	require.Equal(t, ""+
		"TIME                  USER   VERB     RESOURCE   NAME        RESULT\n"+
		"2026-11-30 10:02:00   ada    create   vpcs       web         ok\n"+
		"2026-11-30 10:01:00   eve    delete   vpcs       \"\\x1b[2J\"   403 Forbidden (12 times since 09:58:00)\n"+
		"2026-11-30 10:00:00   bob    exec     pods       web         unknown\n", out.String())
	out.Reset()
	require.NoError(t, printed(&auditOptions{output: "wide"}, &out, nil).tell(entries[:2], true))
	require.Regexp(t, `RESULT +SOURCE +BY\n.* ok +192.0.2.7 +session 0123\n.*\) +token 4567\n$`, out.String())
}

func TestAnAuditTrailIsReadInAsManyPagesAsItTakes(t *testing.T) {
	var asked []int
	ask := func(q *account.AuditQuery) ([]account.AuditEntry, string, error) {
		asked = append(asked, q.Limit)
		first := 0
		if q.Continue != "" {
			_, err := fmt.Sscan(q.Continue, &first)
			require.NoError(t, err)
		}
		if first == 500 { // a page may have nothing, and there are more
			return nil, "501", nil
		}
		entries := make([]account.AuditEntry, min(q.Limit, 1001-first))
		if first+len(entries) == 1001 {
			return entries, "", nil
		}
		return entries, fmt.Sprint(first + len(entries)), nil
	}
	trail := printed(&auditOptions{}, nil, ask)
	for limit, want := range map[int]int{0: 1000, 1: 1, 50: 50, 700: 700, 5000: 1000} {
		entries, err := trail.read(account.AuditQuery{}, limit)
		require.NoError(t, err)
		require.Len(t, entries, want)
	}
	require.NotContains(t, asked, 0)
}

func TestAnAuditTrailThatIsFollowedTellsEachEntryOnce(t *testing.T) {
	first := auditAt(10, 0, account.AuditEntry{User: "ada", Verb: "create", Resource: "vpcs", Name: "one", Code: 201})
	late := first
	late.Name, late.Time = "late", first.Time.Add(-5*time.Second)
	last := first
	last.Name, last.Time = "last", first.Time.Add(time.Minute)
	ended := errors.New("ended")
	round := 0
	var out bytes.Buffer
	trail := printed(&auditOptions{limit: 50}, &out, func(q *account.AuditQuery) ([]account.AuditEntry, string, error) {
		round++
		switch round {
		case 1:
			require.True(t, q.Since.IsZero())
			return []account.AuditEntry{first}, "", nil
		case 2: // one that was stored only now
			require.Equal(t, first.Time.Add(-settles), q.Since)
			return []account.AuditEntry{first, late}, "", nil
		case 3:
			return []account.AuditEntry{last, first, late}, "", nil
		}
		require.False(t, q.Since.Before(first.Time), "%s", q.Since)
		return nil, "", ended
	})
	trail.every = time.Millisecond
	require.ErrorIs(t, trail.follow(t.Context()), ended)
	require.Regexp(t, `^TIME.*\n.*one .*\n.*late .*\n.*last .*\n$`, out.String())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	trail.ask = func(*account.AuditQuery) ([]account.AuditEntry, string, error) { return nil, "", nil }
	require.ErrorIs(t, trail.follow(ctx), context.Canceled)
}

func TestAuditFlagsThatSayNothing(t *testing.T) {
	for name, bad := range map[string][]string{
		"--since now: it must be a length":           {"--since", "now"},
		"--until 1x: it must be a length":            {"--until", "1x"},
		"--limit -1: it must not be negative":        {"--limit", "-1"},
		"-o name is not a format of this command":    {"-o", "name"},
		"-f goes on for ever":                        {"-f", "-o", "json"},
		"this command takes no arguments; --resourc": {"vpcs"},
	} {
		o := runMni(t.Context(), t.TempDir(), "", append([]string{"audit"}, bad...)...)
		require.Equal(t, ExitUsage, o.code, o.stderr)
		require.Contains(t, o.stderr, name)
	}
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "90m": now.Add(-90 * time.Minute), "7d": now.Add(-7 * 24 * time.Hour), "2026-11-30T10:00:00Z": now.Add(-2 * time.Hour),
	} {
		at, err := parseMoment(text, now)
		require.NoError(t, err)
		require.True(t, want.Equal(at), text)
	}
}
