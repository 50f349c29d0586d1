// Package commands is the machine owner's part of `mni`: up, down, reset, status and logs, and the hidden commands that
// instances run themselves. It turns flags into calls of the cloud package and results into text; it decides nothing.
package commands

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/distro/instance"
)

// Commands are the owner's commands, to be added to the root command.
func Commands() []*cobra.Command {
	return []*cobra.Command{upCommand(), downCommand(), resetCommand(), statusCommand(), instanceCommand()}
}

func instanceFlag(cmd *cobra.Command, name *string) {
	cmd.Flags().StringVar(name, "instance", instance.FromEnvironment(), "name of the cloud on this machine (environment: "+instance.Variable+")")
	_ = cmd.RegisterFlagCompletionFunc("instance", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		all, err := cloud.Registry().List()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for _, i := range all {
			names = append(names, i.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// progress prints each step with the time since the command began.
func progress(out io.Writer) cloud.Progress {
	start := time.Now()
	return func(step string) { fmt.Fprintf(out, "%6.1fs  %s\n", time.Since(start).Seconds(), step) }
}

func downCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop a cloud and leave nothing of it running; its state stays",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := rootOnly(); err != nil {
				return err
			}
			c, known, err := find(cmd.Context(), name)
			if err != nil {
				return err
			}
			if !known {
				fmt.Fprintf(cmd.OutOrStdout(), "There is no cloud %q on this machine.\n", name)
				return nil
			}
			if err := c.Down(cmd.Context(), progress(cmd.ErrOrStderr())); err != nil {
				ifStopped(cmd, func() string {
					return fmt.Sprintf("before cloud %q was: its state is kept; `mni down%s` goes on", name, cloud.Flag(name))
				})
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Cloud %q is stopped. `%s up%s` starts it again with its state.\n", name, cmd.Root().CommandPath(), cloud.Flag(name))
			return nil
		},
	}
	instanceFlag(cmd, &name)
	return cmd
}

func resetCommand() *cobra.Command {
	var name string
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Stop a cloud and delete everything it keeps",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := rootOnly(); err != nil {
				return err
			}
			c, known, err := find(cmd.Context(), name)
			if err != nil {
				return err
			}
			if !known {
				fmt.Fprintf(cmd.OutOrStdout(), "There is no cloud %q on this machine.\n", name)
				return nil
			}
			if !yes {
				if err := confirm(cmd, fmt.Sprintf("Delete cloud %q with everything in it (%s)?", name, c.Instance.StateDir())); err != nil {
					return err
				}
			}
			if err := c.Reset(cmd.Context(), progress(cmd.ErrOrStderr())); err != nil {
				ifStopped(cmd, func() string {
					return fmt.Sprintf("before cloud %q was deleted: its state is still there; `mni reset%s` goes on", name, cloud.Flag(name))
				})
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "Cloud %q is deleted.\n", name)
			return nil
		},
	}
	instanceFlag(cmd, &name)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return cmd
}

func confirm(cmd *cobra.Command, question string) error {
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return fmt.Errorf("standard input is not a terminal to ask on: say --yes if you mean it")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s [y/N] ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return fmt.Errorf("nothing was deleted")
	}
	return nil
}

// find is cloud.Find for commands to which a cloud that does not exist is no error. One whose state was deleted by other
// means while it ran still exists.
func find(ctx context.Context, name string) (cloud.Cloud, bool, error) {
	_, known, err := cloud.Registry().Find(name)
	if err != nil {
		return cloud.Cloud{}, false, err
	}
	if !known {
		c, left, err := cloud.Lost(ctx, name)
		return c, left, err
	}
	c, err := cloud.Find(name)
	return c, err == nil, err
}

func rootOnly() error {
	if uid := os.Geteuid(); uid != 0 {
		return fmt.Errorf("this takes root's rights and runs as user %d: run it with sudo", uid)
	}
	return nil
}

// ifStopped says how things are, and what to do, when a signal stopped the command.
func ifStopped(cmd *cobra.Command, how func() string) {
	if cmd.Context().Err() != nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "Stopped %s.\n", strings.ReplaceAll(how(), "`mni ", "`"+cmd.Root().CommandPath()+" "))
	}
}
