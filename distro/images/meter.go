package images

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// meter shows the progress of one push: one line that changes on a terminal, and on anything else only how it ended.
type meter struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex
	shown time.Time
	last  Progress
}

func newMeter(out io.Writer) *meter {
	file, ok := out.(*os.File)
	return &meter{out: out, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

// show takes note of progress and shows it ten times a second at most.
func (m *meter) show(progress Progress) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = progress
	if m.terminal && !progress.Done && time.Since(m.shown) > 100*time.Millisecond {
		m.shown = time.Now()
		fmt.Fprintf(m.out, "\r\x1b[K%s: %s of %s", progress.Image, bytesText(progress.Complete), bytesText(progress.Total))
	}
}

// end shows how it ended.
func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.terminal {
		fmt.Fprint(m.out, "\r\x1b[K")
	}
	switch {
	case !m.last.Done:
	case m.last.Total == 0:
		fmt.Fprintf(m.out, "%s: the registry has it already\n", m.last.Image)
	default:
		fmt.Fprintf(m.out, "%s: pushed %s\n", m.last.Image, bytesText(m.last.Total))
	}
}
