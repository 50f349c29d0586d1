package bird

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Daemon is the BIRD of a node. It outlives the process that started it: the next one finds it by its folder and goes on with it.
// Its methods may not be called at once.
type Daemon struct {
	// Program is BIRD's path.
	Program string
	// Dir is a folder for it alone, gone after a reboot.
	Dir string
	Log *slog.Logger

	running *process
	exited  chan struct{} // closed when running has ended; nil while none was started
}

// Names in Dir. What BIRD writes itself is in a folder of its own, as it gives its rights up.
const (
	configName  = "bird.conf"
	appliedName = "bird.applied" // the sum of the configuration that BIRD has
	pidName     = "bird.pid"
	outputName  = "bird.out"
	birdDir     = "bird"
)

// LogFile is where the daemon's Config should log to.
func (d *Daemon) LogFile() string { return filepath.Join(d.Dir, birdDir, "bird.log") }

// Control is the daemon's control socket.
func (d *Daemon) Control() Control { return Control{Socket: filepath.Join(d.Dir, birdDir, "bird.ctl")} }

func (d *Daemon) path(name string) string { return filepath.Join(d.Dir, name) }

// birdUser is the user that BIRD becomes once it has its sockets; Debian's package makes it. Without it BIRD stays root.
const birdUser = "bird"

// account is the numeric user and group of birdUser; ok is false when there is none.
func account() (uid, gid int, ok bool) {
	u, err := user.Lookup(birdUser)
	if err != nil {
		return 0, 0, false
	}
	uid, errUID := strconv.Atoi(u.Uid)
	gid, errGID := strconv.Atoi(u.Gid)
	return uid, gid, errUID == nil && errGID == nil
}

// ErrRefused is the error of a Config that BIRD does not accept. The one before stays in force.
var ErrRefused = errors.New("BIRD refuses its configuration")

// Ensure makes BIRD run with the Config. It does nothing when it does already.
func (d *Daemon) Ensure(ctx context.Context, config Config) error {
	text := config.Text()
	sum := sha256.Sum256([]byte(text))
	want := hex.EncodeToString(sum[:])
	alive, err := d.alive(ctx)
	if err != nil {
		return err
	}
	if alive {
		if have, err := os.ReadFile(d.path(appliedName)); err == nil && string(have) == want {
			return nil
		}
	}
	if err := d.check(ctx, text); err != nil {
		return err
	}
	if err := d.write(configName, text); err != nil {
		return err
	}
	if alive {
		if err := d.Control().Configure(ctx); err != nil {
			return err
		}
		d.Log.Info("BIRD has a new configuration")
	} else if err := d.start(ctx); err != nil {
		return err
	}
	return os.WriteFile(d.path(appliedName), []byte(want), 0o600)
}

// Prepare makes the folder, before anything else is done. BIRD must find its configuration there after it gave its rights up.
func (d *Daemon) Prepare() error {
	own := d.path(birdDir)
	for dir, mode := range map[string]fs.FileMode{d.Dir: 0o755, own: 0o750} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("make BIRD's folder: %w", err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			return fmt.Errorf("make BIRD's folder: %w", err)
		}
	}
	if uid, gid, ok := account(); ok {
		return os.Chown(own, uid, gid)
	}
	return nil
}

// write puts a file that BIRD can read, and others cannot, into Dir.
func (d *Daemon) write(name, text string) error {
	temporary := d.path(name + ".new")
	if err := os.WriteFile(temporary, []byte(text), 0o640); err != nil {
		return fmt.Errorf("write BIRD's configuration: %w", err)
	}
	if _, gid, ok := account(); ok {
		if err := os.Chown(temporary, 0, gid); err != nil {
			return fmt.Errorf("write BIRD's configuration: %w", err)
		}
	}
	return os.Rename(temporary, d.path(name))
}

// check lets BIRD read a configuration without using it.
func (d *Daemon) check(ctx context.Context, text string) error {
	const name = "bird.check"
	if err := d.write(name, text); err != nil {
		return err
	}
	defer func() { _ = os.Remove(d.path(name)) }()
	return Check(ctx, d.Program, d.path(name))
}

// Check lets BIRD read a configuration file without using it; a file it does not accept is an ErrRefused.
func Check(ctx context.Context, program, file string) error {
	out, err := exec.CommandContext(ctx, program, "-p", "-c", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %w: %s", ErrRefused, err, bytes.TrimSpace(out))
	}
	return nil
}

// alive tells whether BIRD runs, and adopts one that an earlier process started. One whose program has been replaced since is
// ended so that its peers keep its routes.
func (d *Daemon) alive(ctx context.Context) (bool, error) {
	if d.running == nil {
		p, err := d.find()
		if err != nil || p == nil {
			return false, err
		}
		d.adopt(p)
		d.Log.Info("took over the running BIRD", "pid", p.pid)
		if !p.runs(d.Program) {
			d.Log.Info("BIRD's program was replaced; restarting it gracefully", "pid", p.pid)
			return false, d.Restart(ctx)
		}
	}
	select {
	case <-d.exited:
		d.running = nil
		return false, nil
	default:
		return true, nil
	}
}

func (d *Daemon) adopt(p *process) {
	d.running, d.exited = p, make(chan struct{})
	go func(exited chan struct{}) {
		defer close(exited)
		p.wait()
	}(d.exited)
}

// Exited is closed when the BIRD that runs now has ended; nil when none was started or found, or it was ended on purpose.
func (d *Daemon) Exited() <-chan struct{} {
	if d.running == nil {
		return nil
	}
	return d.exited
}

// startTimeout bounds BIRD's start.
const startTimeout = 10 * time.Second

// start starts BIRD; after an earlier one of this boot as one that restarts (RFC 4724), so that peers keep what that one told.
func (d *Daemon) start(ctx context.Context) error {
	out, err := os.Create(d.path(outputName))
	if err != nil {
		return err
	}
	defer out.Close()
	args := []string{"-f", "-c", d.path(configName), "-s", d.Control().Socket}
	if _, err := os.Stat(d.path(pidName)); err == nil {
		args = append(args, "-R")
	}
	if _, _, ok := account(); ok {
		args = append(args, "-u", birdUser, "-g", birdUser)
	}
	p, err := startProcess(d.Program, args, out)
	if err != nil {
		return fmt.Errorf("start BIRD: %w", err)
	}
	d.adopt(p)
	if err := os.WriteFile(d.path(pidName), []byte(strconv.Itoa(p.pid)), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for d.Control().Ping(ctx) != nil {
		select {
		case <-d.exited:
			said, _ := os.ReadFile(d.path(outputName))
			return fmt.Errorf("BIRD ended at once: %s", bytes.TrimSpace(said))
		case <-ctx.Done():
			return fmt.Errorf("BIRD does not answer: %w", ctx.Err())
		case <-again.C:
		}
	}
	d.Log.Info("started BIRD", "pid", p.pid)
	return nil
}

// endTimeout is how long BIRD has to end by itself.
const endTimeout = 5 * time.Second

// Restart ends BIRD, and the next Ensure starts it again. Its peers keep its routes meanwhile.
func (d *Daemon) Restart(ctx context.Context) error {
	return d.end(func() error { return d.Control().restart(ctx) })
}

// Kill ends a BIRD that does not answer; its peers keep its routes.
func (d *Daemon) Kill() error { return d.end(func() error { return errors.New("it does not answer") }) }

// Stop ends BIRD for good: its peers forget its routes at once.
func (d *Daemon) Stop() error {
	if d.running == nil {
		p, err := d.find()
		if err != nil || p == nil {
			return err
		}
		d.adopt(p)
	}
	if err := d.end(func() error { return d.running.terminate() }); err != nil {
		return err
	}
	if err := os.Remove(d.path(pidName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// end asks BIRD to end, and kills it when it cannot be asked or does not obey.
func (d *Daemon) end(ask func() error) error {
	if d.running == nil {
		return nil
	}
	if err := ask(); err == nil {
		select {
		case <-d.exited:
			d.running = nil
			return nil
		case <-time.After(endTimeout):
		}
	}
	if err := d.running.kill(); err != nil {
		return fmt.Errorf("kill BIRD: %w", err)
	}
	<-d.exited
	d.running = nil
	return nil
}

// find looks for the BIRD that an earlier process started in this folder.
func (d *Daemon) find() (*process, error) {
	raw, err := os.ReadFile(d.path(pidName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || pid <= 0 {
		return nil, nil //nolint:nilerr // a file that was cut off names nobody
	}
	return findProcess(pid, d.Control().Socket)
}
