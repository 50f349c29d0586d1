package fanout_test

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/platform/gateway/fanout"
)

// source is an upstream that a test writes.
type source struct {
	version atomic.Uint64
	streams chan io.ReadCloser
	failing atomic.Bool
	watches atomic.Int64
	after   atomic.Uint64
}

func (s *source) upstream() fanout.Upstream {
	return fanout.Upstream{
		Version: func(context.Context) (uint64, error) {
			if s.failing.Load() {
				return 0, errors.New("not now")
			}
			return s.version.Load(), nil
		},
		Watch: func(ctx context.Context, after uint64) (io.ReadCloser, error) {
			s.watches.Add(1)
			s.after.Store(after)
			if s.failing.Load() {
				return nil, errors.New("not now")
			}
			select {
			case stream := <-s.streams:
				return stream, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
	}
}

func (s *source) stream(t *testing.T) *io.PipeWriter {
	t.Helper()
	r, w := io.Pipe()
	s.streams <- r
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func follow(t *testing.T, h *fanout.Hub, after uint64) *fanout.Follower {
	t.Helper()
	var f *fanout.Follower
	require.Eventually(t, func() (ok bool) {
		f, ok = h.Follow("red", after)
		return ok
	}, patience, time.Millisecond)
	return f
}

func TestAHubGoesOnAfterAStreamThatEndedAndBeginsAnewAfterOneThatCannot(t *testing.T) {
	s := &source{streams: make(chan io.ReadCloser, 10)}
	s.version.Store(10)
	h := fanout.NewHub(s.upstream(), 1<<20, func(error) {})
	go h.Run(t.Context())
	first := s.stream(t)
	f := follow(t, h, 10)
	write := func(w io.Writer, text string) {
		_, err := io.WriteString(w, text)
		require.NoError(t, err)
	}
	write(first, string(event(11, "red", "").Raw))
	e, err := f.Next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 11, e.Version)
	require.NoError(t, first.Close())
	second := s.stream(t)
	write(second, string(event(12, "red", "").Raw))
	e, err = f.Next(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 12, e.Version)
	require.EqualValues(t, 11, s.after.Load(), "it goes on from where it was")
	s.version.Store(50)
	write(second, `{"type":"ERROR","object":{"kind":"Status","code":410}}`)
	_, err = f.Next(t.Context())
	require.ErrorIs(t, err, fanout.ErrLost)
	f.Close()
	follow(t, h, 50).Close()
	_, ok := h.Follow("red", 12)
	require.False(t, ok)
}

func TestAHubThatHasNoUpstreamLosesItsFollowersAndTakesNone(t *testing.T) {
	s := &source{streams: make(chan io.ReadCloser, 10)}
	s.version.Store(10)
	h := fanout.NewHub(s.upstream(), 1<<20, func(error) {})
	go h.Run(t.Context())
	stream := s.stream(t)
	f := follow(t, h, 10)
	s.failing.Store(true)
	require.NoError(t, stream.CloseWithError(errors.New("cut")))
	_, err := f.Next(t.Context())
	require.ErrorIs(t, err, fanout.ErrLost)
	_, ok := h.Follow("red", 10)
	require.False(t, ok)
	s.failing.Store(false)
	follow(t, h, 10).Close()
}

func TestHubsAreSharedAndStopWhenNobodyUsesThem(t *testing.T) {
	s := &source{streams: make(chan io.ReadCloser, 10)}
	s.version.Store(10)
	var made atomic.Int64
	hubs := &fanout.Hubs{Linger: 20 * time.Millisecond, Make: func(string) *fanout.Hub {
		made.Add(1)
		return fanout.NewHub(s.upstream(), 1<<20, func(error) {})
	}}
	defer hubs.Stop()
	a, doneA := hubs.Use("a")
	again, doneAgain := hubs.Use("a")
	require.Same(t, a, again)
	follow(t, a, 10).Close()
	doneA()
	doneAgain()
	require.Eventually(t, func() bool {
		_, ok := a.Follow("red", 10)
		return !ok
	}, patience, time.Millisecond, "it stops")
	other, done := hubs.Use("a")
	defer done()
	require.NotSame(t, a, other)
	require.EqualValues(t, 2, made.Load())
}
