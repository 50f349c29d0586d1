package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"
)

// Logs are kept to about maxLog bytes a file and keptLogs older files.
const (
	maxLog   = 16 << 20
	keptLogs = 3
)

func rotateForever(ctx context.Context, plan Plan, log *slog.Logger) {
	for sleep(ctx, time.Minute) {
		for _, part := range plan.Parts {
			if err := rotate(plan.Log(part.Name), maxLog); err != nil {
				log.Error("cannot rotate a log", "part", part.Name, "error", err)
			}
		}
	}
}

// rotate copies a log that has grown too long aside and empties it. The part has it open for appending and goes on
// writing at the new end; lines written between the copy and the emptying are lost.
func rotate(file string, limit int64) error {
	stat, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && stat.Size() <= limit {
		return nil
	}
	if err != nil {
		return err
	}
	older := func(n int) string { return fmt.Sprintf("%s.%d", file, n) }
	for n := keptLogs - 1; n >= 1; n-- {
		if err := os.Rename(older(n), older(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	from, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(older(1), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err := errors.Join(err, to.Close()); err != nil {
		return err
	}
	return os.Truncate(file, 0)
}
