package cli

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newLogsCommand(c *connection) *cobra.Command {
	var o corev1.PodLogOptions
	var tail int64
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "logs CONTAINER",
		Short: "Print what a Container wrote",
		Long: `Print what a Container wrote to its standard output and error.

pod/NAME names a Pod of Kubernetes' own.`,
		Example: `  # All of it; the last ten lines, then what follows
  mni logs web
  mni logs web --tail 10 -f

  # Of the run before the last restart
  mni logs web -p`,
		Args:              oneContainer,
		ValidArgsFunction: c.completeContainer,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tail") {
				o.TailLines = &tail
			}
			if since > 0 {
				o.SinceTime = &metav1.Time{Time: time.Now().Add(-since)}
			}
			return c.logs(cmd.Context(), args[0], &o)
		}),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.Follow, "follow", "f", false, "go on printing what is written")
	flags.BoolVarP(&o.Previous, "previous", "p", false, "of the run before the last restart")
	flags.BoolVar(&o.Timestamps, "timestamps", false, "begin each line with its time")
	flags.Int64Var(&tail, "tail", -1, "only the last lines; -1 is all")
	flags.DurationVar(&since, "since", 0, "only what is newer than this, as in 10m")
	return cmd
}

// oneContainer refuses anything but one name.
func oneContainer(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("give the name of one Container: `mni get containers` lists them")
	}
	return nil
}

func (c *connection) logs(ctx context.Context, name string, o *corev1.PodLogOptions) error {
	finder, err := c.podFinder()
	if err != nil {
		return err
	}
	pod, err := finder.find(ctx, name)
	if err != nil {
		return err
	}
	o.Container = pod.Spec.Containers[0].Name
	stream, err := finder.kubernetes.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, o).Stream(ctx)
	if err != nil {
		return err
	}
	_, err = io.Copy(c.streams.Out, stream)
	return errors.Join(err, stream.Close())
}
