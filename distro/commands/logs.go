package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnicloud/mnicloud/distro/cloud"
)

func logsCommand() *cobra.Command {
	var name string
	var follow bool
	var tail int
	cmd := &cobra.Command{
		Use:   "logs PART",
		Short: "Print the log of a part of a cloud",
		Long:  "Print the log of a part of a cloud, as `mni status` names it: etcd, node-1/kubelet, supervisor, ... (`mni logs` of a tenant's container: give its namespace with -n.)",
		Args:  cobra.ExactArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			c, err := cloud.Find(name)
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			return logNames(c.Instance.LogDir()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := cloud.Find(name)
			if err != nil {
				return err
			}
			return PrintLog(cmd.Context(), cmd.OutOrStdout(), c.Instance.LogDir(), args[0], tail, follow)
		},
	}
	instanceFlag(cmd, &name)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing what is added")
	cmd.Flags().IntVar(&tail, "tail", -1, "print only the last lines; -1 prints all")
	return cmd
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
