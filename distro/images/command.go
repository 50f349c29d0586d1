package images

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/registry"
)

// Command is `mni image`: the images in the cloud's registry.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "image",
		Short: "Put images into the cloud's registry, list and remove them",
		Long: `Put images into the cloud's registry, list and remove them.

An image pushed as NAME:TAG is ` + registry.Name + `/NAME:TAG in a Container or Pod.`,
	}
	var access accessFlags
	command.PersistentFlags().StringVar(&access.instance, "instance", instance.FromEnvironment(), "name of the cloud on this machine (environment: "+instance.Variable+")")
	for _, c := range []*cobra.Command{pushCommand(&access), listCommand(&access), removeCommand(&access), pruneCommand(&access)} {
		access.register(c)
		command.AddCommand(c)
	}
	command.AddCommand(buildCommand())
	return command
}

// accessFlags say which registry, and as whom.
type accessFlags struct {
	instance      string
	address, ca   string
	username      string
	passwordStdin bool
}

func (f *accessFlags) register(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.address, "registry", "", "host:port of the registry, when it is not the registry of a cloud on this machine")
	flags.StringVar(&f.ca, "ca", "", "certificate authority of --registry, a PEM file (default: the system's)")
	flags.StringVar(&f.username, "username", "", "user of the registry (default: the owner of this machine)")
	flags.BoolVar(&f.passwordStdin, "password-stdin", false, "read the password of --username from standard input")
}

// dial opens the registry that the flags name.
func (f *accessFlags) dial(in io.Reader) (*Remote, error) {
	client, err := f.client()
	if err != nil {
		return nil, err
	}
	if f.passwordStdin != (f.username != "") {
		return nil, errors.New("--username and --password-stdin go together")
	}
	if f.passwordStdin {
		line, err := bufio.NewReader(in).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("--password-stdin: %w", err)
		}
		client.Username, client.Password = f.username, strings.TrimRight(line, "\r\n")
	}
	return Dial(client)
}

func (f *accessFlags) client() (registry.Client, error) {
	if f.address != "" {
		return registry.Client{Endpoint: registry.Endpoint{Address: f.address, CAFile: f.ca}}, nil
	}
	cloud, err := registry.Find(f.instance)
	if err != nil {
		return registry.Client{}, err
	}
	if f.username != "" {
		return registry.Client{Endpoint: registry.EndpointOf(cloud)}, nil
	}
	client, err := registry.ClientOf(cloud)
	if errors.Is(err, os.ErrPermission) {
		return client, fmt.Errorf("only root may use the machine owner's access (%w): run as root, or give --username and --password-stdin", err)
	}
	return client, err
}

func pushCommand(access *accessFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "push FILE|DIRECTORY NAME[:TAG]",
		Short: "Push an OCI layout, OCI archive or docker archive",
		Long: `Push an image from a file or directory: an OCI image layout, an archive of one, or what "docker save" or
"podman save" writes, gzipped or not. Only what the registry does not have is sent.`,
		Example: `  docker save shop:v2 -o shop.tar && mni image push shop.tar shop:v2`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return push(cmd, access, args[0], args[1])
		},
	}
}

func push(cmd *cobra.Command, access *accessFlags, path, image string) (err error) {
	remote, err := access.dial(cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer remote.Close()
	tag, err := remote.tag(image)
	if err != nil {
		return err
	}
	source, err := OpenSource(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	content, err := source.Content(shortName(tag))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	digest, err := content.Digest()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	progress := newMeter(cmd.ErrOrStderr())
	err = remote.Push(cmd.Context(), content, image, progress.show)
	progress.end()
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s/%s@%s\n", registry.Name, shortName(tag), digest)
	return nil
}

func removeCommand(access *accessFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "rm NAME[:TAG]|NAME@DIGEST...",
		Aliases: []string{"remove", "delete"},
		Short:   "Remove images, and free the space that only they used",
		Args:    cobra.MinimumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			return access.complete(cmd, args, prefix), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			remote, err := access.dial(cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer remote.Close()
			var failed []error
			removed := 0
			for _, image := range args {
				name, err := remote.Remove(cmd.Context(), image)
				if err != nil {
					failed = append(failed, err)
					continue
				}
				removed++
				fmt.Fprintln(cmd.OutOrStdout(), "removed", name)
			}
			if removed > 0 {
				failed = append(failed, collect(cmd.Context(), remote, false, cmd.ErrOrStderr()))
			}
			return errors.Join(failed...)
		},
	}
}

func pruneCommand(access *accessFlags) *cobra.Command {
	var untagged bool
	command := &cobra.Command{
		Use:   "prune",
		Short: "Free the space of what no image uses",
		Long: `Free the space of what no image uses: blobs of removed images and, with --untagged, images whose tag has been
given to another since (Pods that name them by digest cannot pull them afterwards). Pushes may go on meanwhile.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			remote, err := access.dial(cmd.InOrStdin())
			if err != nil {
				return err
			}
			defer remote.Close()
			return collect(cmd.Context(), remote, untagged, cmd.ErrOrStderr())
		},
	}
	command.Flags().BoolVar(&untagged, "untagged", false, "remove images without a tag, too")
	return command
}

func collect(ctx context.Context, remote *Remote, untagged bool, out io.Writer) error {
	result, err := remote.client.Collect(ctx, untagged)
	if err != nil {
		return fmt.Errorf("free the space: %w", remote.explain(err))
	}
	fmt.Fprintf(out, "freed %s, the registry holds %s\n", bytesText(result.FreedBytes), bytesText(result.UsedBytes))
	return nil
}

func buildCommand() *cobra.Command {
	var options BuildOptions
	command := &cobra.Command{
		Use:    "build",
		Short:  "Make the cloud's own images as an OCI layout",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.Programs == "" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				options.Programs = filepath.Dir(self)
			}
			start := time.Now()
			return Build(cmd.Context(), options, func(built Built) {
				state := "unchanged"
				if built.Fresh {
					state = "built in " + time.Since(start).Round(10*time.Millisecond).String()
				}
				start = time.Now()
				fmt.Fprintf(cmd.OutOrStdout(), "%-24s %s %s\n", built.Image, built.Digest, state)
			})
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.Out, "out", "build/images", "directory of the OCI layout")
	flags.StringVar(&options.Programs, "programs", "", "directory of the programs pause, whoami and mni-coredns (default: where mni is)")
	flags.StringVar(&options.Packages, "packages", "", "directory in which Debian packages are kept (default: packages beside --out)")
	flags.BoolVar(&options.Refresh, "refresh", false, "look for newer Debian packages")
	flags.StringVar(&options.Set, "set", Cloud, "the set of images: none for the cloud's own, or "+Conformance)
	flags.StringSliceVar(&options.Only, "only", nil, "only these repositories, such as mni/busybox")
	return command
}
