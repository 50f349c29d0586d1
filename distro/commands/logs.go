package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// AddPartLogs lets the tenants' command `mni logs CONTAINER` print the log of a part of the cloud too: when no namespace
// is given and the name is a part's.
func AddPartLogs(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"logs"})
	if err != nil || cmd == root {
		return
	}
	cmd.Use = "logs CONTAINER|PART"
	cmd.Long += `

The machine's owner gets the log of a part of the cloud, by the name that ` + "`mni status`" + ` gives it, when no namespace is
given: etcd, apiserver, node-1/kubelet, supervisor, ... Of the flags, --tail and --follow count there.`
	cmd.Example += `

  # Of a part of the cloud
  mni logs node-1/kubelet -f`
	containers, names := cmd.RunE, cmd.ValidArgsFunction
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dir, ok := partLogs(cmd, args[0])
		if !ok {
			err := containers(cmd, args)
			if parts, ok := partLogs(cmd, ""); ok {
				err = orPart(parts, args[0], err)
			}
			return err
		}
		follow, err := cmd.Flags().GetBool("follow")
		if err != nil {
			return err
		}
		tail, err := cmd.Flags().GetInt64("tail")
		if err != nil {
			return err
		}
		return PrintLog(cmd.Context(), cmd.OutOrStdout(), dir, args[0], int(tail), follow)
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		found, directive := names(cmd, args, prefix)
		if dir, ok := partLogs(cmd, ""); ok && len(args) == 0 {
			found = append(found, logNames(dir)...)
		}
		return found, directive
	}
}

// orPart adds to the error about a Container that was not found, or could not be looked for, which parts of the cloud there
// are: one of them may have been meant.
func orPart(dir, name string, err error) error {
	if err == nil {
		return nil
	}
	first, part, typed := strings.Cut(name, "/")
	_, statErr := os.Stat(filepath.Join(dir, first))
	ofAnother := func(other string) bool { return strings.HasSuffix(other, "/"+part) }
	unreachable := new(url.Error)
	switch {
	case typed && filepath.IsLocal(name) && (statErr == nil || slices.ContainsFunc(logNames(dir), ofAnother)): // a node's part
	case !typed && (apierrors.IsNotFound(err) || errors.As(err, &unreachable)):
	default:
		return err
	}
	return fmt.Errorf("%w; no part of the cloud is named %q either, there are: %s", err, name, strings.Join(logNames(dir), ", "))
}

// partLogs is the folder of logs, if the command line may speak of the part (of any part when it is empty).
func partLogs(cmd *cobra.Command, part string) (dir string, ok bool) {
	for _, elsewhere := range []string{"namespace", "tenant", "kubeconfig", "context", "profile"} {
		if f := cmd.Flag(elsewhere); f != nil && f.Changed {
			return "", false
		}
	}
	name := instance.FromEnvironment()
	if f := cmd.Flag("instance"); f != nil && f.Changed {
		name = f.Value.String()
	}
	if instance.ValidateName(name) != nil {
		return "", false
	}
	dir = instance.Instance{Name: name}.LogDir()
	if part == "" {
		_, err := os.Stat(dir)
		return dir, err == nil
	}
	if !filepath.IsLocal(part) {
		return "", false
	}
	_, err := os.Stat(filepath.Join(dir, part+".log"))
	return dir, err == nil
}

// PrintLog prints a part's log from a folder of logs.
func PrintLog(ctx context.Context, out io.Writer, dir, part string, tail int, follow bool) error {
	if !filepath.IsLocal(part) {
		return fmt.Errorf("part %q: a part's name is one of: %s", part, strings.Join(logNames(dir), ", "))
	}
	file, err := os.Open(filepath.Join(dir, part+".log"))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("part %q has no log; there are: %s", part, strings.Join(logNames(dir), ", "))
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if tail >= 0 {
		if err := seekTail(file, tail); err != nil {
			return err
		}
	}
	if _, err := io.Copy(out, file); err != nil || !follow {
		return err
	}
	return followFile(ctx, out, file)
}

// followFile prints what is appended, from the start again when the log was rotated (emptied).
func followFile(ctx context.Context, out io.Writer, file *os.File) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		at, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		stat, err := file.Stat()
		if err != nil {
			return err
		}
		if stat.Size() < at {
			if _, err := file.Seek(0, io.SeekStart); err != nil {
				return err
			}
		}
		if _, err := io.Copy(out, file); err != nil {
			return err
		}
	}
}

// seekTail moves to the start of the last n lines.
func seekTail(file *os.File, n int) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	const chunk = 4096
	buffer := make([]byte, chunk)
	newlines := 0
	for at := end; at > 0; {
		size := min(chunk, at)
		at -= size
		if _, err := file.ReadAt(buffer[:size], at); err != nil {
			return err
		}
		for i := size - 1; i >= 0; i-- {
			if buffer[i] != '\n' || at+i == end-1 && n > 0 {
				continue // the newline that ends the last line
			}
			if newlines++; newlines == max(n, 1) {
				_, err := file.Seek(at+i+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

func logNames(dir string) []string {
	var names []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".log") {
			rel, _ := filepath.Rel(dir, path)
			names = append(names, strings.TrimSuffix(rel, ".log"))
		}
		return nil
	})
	return names
}
