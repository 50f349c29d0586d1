package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd/exec"
	"k8s.io/kubectl/pkg/scheme"
)

func newExecCommand(c *connection) *cobra.Command {
	o := &exec.ExecOptions{Executor: &exec.DefaultRemoteExecutor{}}
	cmd := &cobra.Command{
		Use:   "exec CONTAINER [-it] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a Container",
		Long: `Run a command in a Container. The exit code is the command's.

pod/NAME names a Pod of Kubernetes' own.`,
		Example: `  # A command; a shell on this terminal; with this command's input
  mni exec web -- ls -l /
  mni exec web -it -- sh
  mni exec db -i -- restore < backup.sql`,
		ValidArgsFunction: c.completeContainer,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash != 1 || len(args) < 2 {
				return usagef("give one Container and, after --, a command: `mni exec web -- ls -l /`")
			}
			o.Command = args[1:]
			return c.exec(cmd.Context(), args[0], o)
		}),
	}
	cmd.Flags().BoolVarP(&o.Stdin, "stdin", "i", false, "pass standard input to the command")
	cmd.Flags().BoolVarP(&o.TTY, "tty", "t", false, "give the command a terminal (with -i)")
	cmd.Flags().BoolVarP(&o.Quiet, "quiet", "q", false, "print only what the command writes")
	return cmd
}

func (c *connection) exec(ctx context.Context, name string, o *exec.ExecOptions) error {
	finder, err := c.podFinder()
	if err != nil {
		return err
	}
	pod, err := finder.find(ctx, name)
	if err != nil {
		return err
	}
	if phase := pod.Status.Phase; phase != corev1.PodRunning {
		return fmt.Errorf("%s does not run now (its Pod is %s): `mni describe container` tells why", name, phase)
	}
	o.IOStreams = c.streams
	o.Namespace, o.PodName, o.ContainerName = pod.Namespace, pod.Name, pod.Spec.Containers[0].Name
	o.PodClient = finder.kubernetes.CoreV1()
	o.Stdin = o.Stdin || o.TTY
	if o.Config, err = c.coreConfig(); err != nil {
		return err
	}
	return o.Run()
}

// coreConfig is the client configuration for Kubernetes' core API group.
func (c *connection) coreConfig() (*rest.Config, error) {
	config, err := c.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return config, nil
}
