package fanout_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/platform/gateway/fanout"
)

// patience bounds each wait for a condition.
const patience = time.Minute

func event(version uint64, namespace, more string) *fanout.Event {
	raw := fmt.Sprintf(`{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":%q,"resourceVersion":"%d","uid":%q}}}`, namespace, version, more)
	e, err := fanout.Read(json.RawMessage(raw))
	if err != nil {
		panic(err)
	}
	return e
}

func bookmark(version uint64) *fanout.Event {
	e, err := fanout.Read(json.RawMessage(fmt.Sprintf(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"%d"}}}`, version)))
	if err != nil {
		panic(err)
	}
	return e
}

// now is what Next gives without waiting; nil when it would wait.
func now(t *testing.T, f *fanout.Follower) (*fanout.Event, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e, err := f.Next(ctx)
	if errors.Is(err, context.Canceled) {
		return nil, nil
	}
	return e, err
}

func TestAnEventIsReadForWhatItSays(t *testing.T) {
	e := event(7, "red", "x")
	require.Equal(t, "red", e.Namespace)
	require.EqualValues(t, 7, e.Version)
	end, err := fanout.Read(json.RawMessage(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}`))
	require.NoError(t, err)
	require.True(t, end.EndsInitial)
	gone, err := fanout.Read(json.RawMessage(`{"type":"ERROR","object":{"kind":"Status","metadata":{"resourceVersion":"9"}}}`))
	require.NoError(t, err)
	require.Zero(t, gone.Version)
	for _, bad := range []string{`{"type":"ADDED"}`, `{"object":{}}`, `[]`, `{"type":"ADDED","object":7}`} {
		_, err := fanout.Read(json.RawMessage(bad))
		require.Error(t, err, bad)
	}
	for text, want := range map[string]uint64{"0": 0, "": 0, "x": 0, "12": 12, "-1": 0} {
		version, ok := fanout.Version(text)
		require.Equal(t, want, version)
		require.Equal(t, want > 0, ok)
	}
}

func TestAFollowerIsNotTakenWhoseEventsAreNotAllThere(t *testing.T) {
	l := fanout.NewLog(1)
	_, ok := l.Follow("red", 100)
	require.False(t, ok, "before it began")
	l.Begin(10)
	_, ok = l.Follow("red", 9)
	require.False(t, ok, "before its beginning")
	for v := uint64(11); v <= 13; v++ { // only the newest fits
		require.True(t, l.Append(event(v, "red", "")))
	}
	for after, want := range map[uint64]bool{10: false, 11: false, 12: true, 13: true, 1000: true} {
		f, ok := l.Follow("red", after)
		require.Equal(t, want, ok, after)
		if ok {
			f.Close()
		}
	}
	_, ok = l.Follow("blue", 11)
	require.False(t, ok, "what was dropped may have been blue's")
	l.End()
	_, ok = l.Follow("red", 13)
	require.False(t, ok, "after its end")
	require.True(t, l.Append(event(14, "red", "")) && !l.Append(event(14, "red", "")) && !l.Append(bookmark(13)), "out of order")
}

func TestOnlyTheSlowFollowerFallsOff(t *testing.T) {
	l := fanout.NewLog(10 * 1024)
	l.Begin(1)
	slow, _ := l.Follow("red", 1)
	quiet, _ := l.Follow("blue", 1)
	quick, _ := l.Follow("red", 1)
	version := uint64(1)
	for range 1000 {
		version++
		require.True(t, l.Append(event(version, "red", "")))
		e, err := now(t, quick)
		require.NoError(t, err)
		require.Equal(t, version, e.Version)
	}
	_, err := now(t, slow)
	require.ErrorIs(t, err, fanout.ErrSlow)
	e, err := now(t, quiet)
	require.NoError(t, err)
	require.Nil(t, e, "blue missed nothing")
	require.True(t, l.Append(event(version+1, "blue", "")))
	e, err = now(t, quiet)
	require.NoError(t, err)
	require.Equal(t, version+1, e.Version)
}

func TestTheLogsMemoryIsBoundedWhateverItsFollowersDo(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // far below
	}
	before := heap()
	l := fanout.NewLog(1 << 20)
	l.Begin(1)
	for i := range 1000 {
		_, ok := l.Follow(fmt.Sprintf("tenant-%d", i), 1)
		require.True(t, ok)
	}
	large := strings.Repeat("x", 10<<10)
	for v := range uint64(10000) { // 100 MB
		require.True(t, l.Append(event(v+2, fmt.Sprintf("tenant-%d", v%2000), large)))
	}
	require.Less(t, heap()-before, int64(8<<20))
	runtime.KeepAlive(l)
}

// TestEachFollowerSeesItsNamespacesEventsInOrderOnceOrIsTold compares followers that come, read and go at random with what was put in.
func TestEachFollowerSeesItsNamespacesEventsInOrderOnceOrIsTold(t *testing.T) {
	type reader struct {
		*fanout.Follower
		namespace string
		after     uint64
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // to be repeated
	l := fanout.NewLog(20 * 500)
	var all []*fanout.Event // since the log began
	var base, version uint64
	var readers []*reader
	namespaces := []string{"", "red", "blue", "green"}
	var seen, told, refused int
	for range 60000 {
		switch rng.IntN(100) {
		case 0:
			version += 5
			base, all = version, nil
			l.Begin(base)
		case 1:
			for _, r := range readers {
				_, err := now(t, r.Follower)
				_ = err
				r.Close()
			}
			readers = nil
		case 2, 3, 4, 5:
			r := &reader{namespace: namespaces[rng.IntN(4)], after: base + rng.Uint64N(version-base+3) - min(1, base)}
			f, ok := l.Follow(r.namespace, r.after)
			if !ok {
				refused++
				continue
			}
			require.GreaterOrEqual(t, r.after, base)
			r.Follower = f
			readers = append(readers, r)
		case 6, 7, 8:
			if base > 0 {
				require.True(t, l.Append(bookmark(version)))
			}
		case 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20:
			if base > 0 {
				version += 1 + rng.Uint64N(3)
				e := event(version, namespaces[1+rng.IntN(3)], strings.Repeat("x", rng.IntN(200)))
				require.True(t, l.Append(e))
				all = append(all, e)
			}
		default:
			if len(readers) == 0 {
				continue
			}
			i := rng.IntN(len(readers))
			r := readers[i]
			got, err := now(t, r.Follower)
			if err != nil {
				told++
				r.Close()
				readers = append(readers[:i], readers[i+1:]...)
				continue
			}
			var want *fanout.Event
			for _, e := range all {
				if e.Version > r.after && (r.namespace == "" || r.namespace == e.Namespace) {
					want = e
					break
				}
			}
			switch {
			case got == nil:
				require.Nil(t, want)
			case got.Type == fanout.Bookmark:
				require.Greater(t, got.Version, r.after)
				require.True(t, want == nil || want.Version > got.Version, "a bookmark says that nothing is missing")
				r.after = got.Version
			default:
				require.Same(t, want, got)
				r.after = got.Version
				seen++
			}
		}
	}
	require.Greater(t, seen, 300)
	require.Greater(t, told, 30)
	require.Greater(t, refused, 30)
}

func TestManyFollowersReadWhileEventsCome(t *testing.T) {
	l := fanout.NewLog(1 << 30)
	l.Begin(1)
	const events = 2000
	var group sync.WaitGroup
	var read atomic.Int64
	for i := range 100 {
		f, ok := l.Follow([]string{"red", "blue"}[i%2], 1)
		require.True(t, ok)
		group.Go(func() {
			defer f.Close()
			for range events / 2 {
				e, err := f.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := e.Told(fmt.Sprint(i%3), func(raw []byte) ([]byte, error) { return raw, nil }); err != nil {
					t.Error(err)
				}
				read.Add(1)
			}
		})
	}
	for v := range uint64(events) {
		require.True(t, l.Append(event(v+2, []string{"red", "blue"}[v%2], "")))
	}
	group.Wait()
	require.EqualValues(t, 100*events/2, read.Load())
}
