package audit

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestNoTextOfAnEntryCanSayMoreThanItIs(t *testing.T) {
	for name, given := range map[string]string{
		"a new line":              "web\n2026-01-01 root delete",
		"an escape":               "\x1b[2J\x1b[1;31mweb",
		"a carriage return":       "web\rfoo",
		"another direction":       "web\u202egnp.exe",
		"no UTF-8":                "web\xff\xfe",
		"a megabyte":              strings.Repeat("w", 1<<20),
		"a megabyte of no UTF-8":  strings.Repeat("\xf0", 1<<20),
		"a megabyte of Japanese":  strings.Repeat("名", 1<<20),
		"cut within a character":  strings.Repeat("w", maxName-1) + "名",
		"nothing of it":           strings.Repeat("\x00", 300),
		"grows by what it is not": strings.Repeat("\x01", maxName),
	} {
		t.Run(name, func(t *testing.T) {
			e := Entry{User: given, Session: given, Token: given, Source: given, Verb: given, Group: given, Resource: given, Name: given, Reason: given}
			e.bound()
			for _, text := range []string{e.User, e.Session, e.Token, e.Source, e.Verb, e.Group, e.Resource, e.Name, e.Reason} {
				require.True(t, utf8.ValidString(text))
				require.LessOrEqual(t, len(text), maxName)
				for _, r := range text {
					require.True(t, unicode.IsPrint(r) || r == utf8.RuneError, "%q", text)
				}
			}
		})
	}
	for _, name := range []string{"", "web", "私のウェブ", strings.Repeat("w", maxName)} {
		e := Entry{Name: name}
		e.bound()
		require.Equal(t, name, e.Name)
	}
}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func refused(at time.Duration, name string) Entry {
	return Entry{Time: noon.Add(at), User: "eve", Verb: "delete", Resource: "vpcs", Name: name, Code: http.StatusForbidden, Reason: "Forbidden"}
}

func TestRefusalsThatAreTheSameAreOneEntryWithACount(t *testing.T) {
	q := newQueue()
	require.False(t, q.add(refused(0, "web")))
	require.False(t, q.add(refused(1*time.Second, "db")))
	require.True(t, q.add(refused(2*time.Second, "web")))
	require.True(t, q.add(refused(3*time.Second, "web")))
	done := refused(4*time.Second, "web")
	done.Code, done.Reason = http.StatusOK, ""
	require.False(t, q.add(done))
	require.False(t, q.add(done), "what was done is never folded")
	require.NoError(t, q.take(noon.Add(4*time.Second), false))
	first := entriesIn(t, q)
	require.Len(t, first, 4)
	require.Equal(t, 3, first[0].Count)
	require.Equal(t, noon, *first[0].Since)
	require.Equal(t, noon.Add(3*time.Second), first[0].Time)
	require.Zero(t, first[1].Count)
	require.Equal(t, noon, q.batch.from.Add(-time.Second), "the entry that was folded tells when it was last")

	// One that was stored of late gathers what is the same for a while.
	q.batch = nil
	require.False(t, q.add(refused(5*time.Second, "web")))
	require.True(t, q.add(refused(6*time.Second, "web")))
	require.NoError(t, q.take(noon.Add(7*time.Second), false))
	require.Nil(t, q.batch)
	require.NoError(t, q.take(noon.Add(14*time.Second), false))
	require.Equal(t, 2, entriesIn(t, q)[0].Count)
	q.batch = nil
	require.NoError(t, q.take(noon.Add(time.Minute), false))
	require.Empty(t, q.stored, "what was long ago is forgotten")
	require.Empty(t, q.repeats)
	require.Nil(t, q.batch)
}

func TestABatchIsBounded(t *testing.T) {
	q := newQueue()
	for i := range 1000 {
		require.False(t, q.add(Entry{Time: noon, User: "ada", Verb: "create", Resource: "vpcs", Name: fmt.Sprint("v-", i), Code: 201}))
	}
	seen := 0
	for {
		require.NoError(t, q.take(noon, true))
		if q.batch == nil {
			break
		}
		require.LessOrEqual(t, len(q.batch.text), maxBatch+maxBatch/100)
		again := q.batch
		require.NoError(t, q.take(noon, true))
		require.Same(t, again, q.batch, "a batch stays until it is stored")
		for _, e := range entriesIn(t, q) {
			require.Equal(t, fmt.Sprint("v-", seen), e.Name)
			seen++
		}
		q.batch = nil
	}
	require.Equal(t, 1000, seen)
}

func entriesIn(t *testing.T, q *queue) []Entry {
	t.Helper()
	require.NotNil(t, q.batch)
	c := (&chunk{name: "c"}).with(q.batch)
	entries, err := entriesOf(c.render("ns", Tenant{}, q.batch.text))
	require.NoError(t, err)
	require.Len(t, entries, q.batch.entries)
	return entries
}

func TestALineThatIsNoneHasNoEntryButAPlace(t *testing.T) {
	entries, err := entriesOf(&corev1.ConfigMap{Data: map[string]string{"000002": `{"user":"b"}` + "\n", "000001": "nonsense\n" + `{"user":"a"}` + "\n"}})
	require.NoError(t, err)
	require.Equal(t, []Entry{{}, {User: "a"}, {User: "b"}}, entries)
	_, err = entriesOf(&corev1.ConfigMap{BinaryData: map[string][]byte{sealed: []byte("nonsense")}})
	require.Error(t, err)
}

func TestWhatIsTooOldAndWhatIsTooMuchGoes(t *testing.T) {
	of := func(name string, days int, bytes int64) about {
		return about{name: name, until: noon.Add(-time.Duration(days) * 24 * time.Hour), bytes: bytes - overhead}
	}
	names := func(chunks []about) string {
		var out string
		for _, c := range chunks {
			out += c.name
		}
		return out
	}
	for name, c := range map[string]struct {
		chunks []about
		goes   string
	}{
		"none":                    {nil, ""},
		"one that is new":         {[]about{of("a", 0, 5000)}, ""},
		"the newest, too much":    {[]about{of("a", 1, 5000), of("b", 0, 1<<30)}, "a"},
		"all too old":             {[]about{of("a", 91, 5000), of("b", 91, 5000)}, "ba"},
		"some too old":            {[]about{of("a", 91, 5000), of("b", 89, 5000)}, "a"},
		"too many":                {[]about{of("a", 3, 4000), of("b", 2, 4000), of("c", 1, 4000), of("d", 0, 2500)}, "ba"},
		"small ones before large": {[]about{of("a", 3, 1500), of("b", 2, 9000), of("c", 1, 4000)}, "ba"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.goes, names(excess(c.chunks, noon, 90*24*time.Hour, 10000)))
		})
	}
}

func TestThereIsRoomForAllButNotForOneTenantAlone(t *testing.T) {
	trail := New(nil, Options{Capacity: 8})
	var places []*Place
	take := func(uid string) {
		p, err := trail.Reserve(uid)
		require.NoError(t, err)
		places = append(places, p)
	}
	full := func(uid string) {
		_, err := trail.Reserve(uid)
		require.ErrorIs(t, err, ErrFull)
	}
	take("a")
	take("a")
	full("a")
	for range 2 {
		take("b")
		take("c")
		take("")
	}
	full("")
	full("d")
	places[0].Release()
	places[0].Release()
	require.Equal(t, 7, trail.waiting())
	take("d")
	full("a")
	// Refusals that are folded take no room.
	for _, p := range places[1:3] {
		p.Record(Tenant{UID: "a", Name: "acme"}, refused(0, "web"))
		p.Record(Tenant{UID: "a", Name: "acme"}, refused(0, "other"))
	}
	require.Equal(t, 7, trail.waiting())
}

func TestTokensOfPagesThatAreNone(t *testing.T) {
	for _, token := range []string{"x", "%%%", "bm9uc2Vuc2U"} {
		_, err := before(token)
		require.ErrorIs(t, err, ErrContinue)
	}
}
