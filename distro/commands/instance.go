package commands

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/distro/images"
	"github.com/mnicloud/mnicloud/distro/manifests"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/parts"
	"github.com/mnicloud/mnicloud/distro/registry"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

// instanceCommand holds what instances run themselves.
func instanceCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "instance", Short: "What a running cloud runs itself", Hidden: true}
	cmd.AddCommand(guardCommand(), pushImagesCommand(), pullImagesCommand(), installManifestsCommand())
	return cmd
}

func guardCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "guard supervisor|keeper",
		Short: "Be the supervisor of a cloud, or the keeper of its supervisor",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			role := supervisor.Role(args[0])
			if role != supervisor.RoleSupervisor && role != supervisor.RoleKeeper {
				return fmt.Errorf("%q is no role: supervisor or keeper", args[0])
			}
			c, err := cloud.Find(name)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			guard := c.Guard(log)
			guard.Maintain = c.Maintain
			return guard.Main(cmd.Context(), role)
		},
	}
	instanceFlag(cmd, &name)
	return cmd
}

func pushImagesCommand() *cobra.Command {
	var name, layout string
	cmd := &cobra.Command{
		Use:   "push-images",
		Short: "Fill a cloud's registry from an OCI layout",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cloud.Find(name)
			if err != nil {
				return err
			}
			client, err := registry.ClientOf(c.Instance)
			if err != nil {
				return err
			}
			return images.PushLayout(cmd.Context(), layout, client, func(p images.Progress) {
				if p.Done {
					fmt.Fprintln(cmd.ErrOrStderr(), p.Image)
				}
			})
		},
	}
	instanceFlag(cmd, &name)
	cmd.Flags().StringVar(&layout, "layout", "", "folder of the OCI layout")
	return cmd
}

func pullImagesCommand() *cobra.Command {
	var sockets []string
	cmd := &cobra.Command{
		Use:   "pull-images IMAGE...",
		Short: "Have nodes' container runtimes pull the images of their first Pods",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, images []string) error {
			group, ctx := errgroup.WithContext(cmd.Context())
			for _, socket := range sockets {
				group.Go(func() error { return node.Pull(ctx, socket, images...) })
			}
			return group.Wait()
		},
	}
	cmd.Flags().StringSliceVar(&sockets, "runtime", nil, "socket of a container runtime")
	return cmd
}

func installManifestsCommand() *cobra.Command {
	var name, dnsImage, pool, peer string
	var nodes int
	cmd := &cobra.Command{
		Use:   "install-manifests",
		Short: "Install what a cloud's API server must hold",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := cloud.Find(name)
			if err != nil {
				return err
			}
			options := parts.Options{Instance: c.Instance, Nodes: nodes, DNSImage: dnsImage}
			if options.Outside, err = cloud.ParseOutside(pool, peer); err != nil {
				return err
			}
			config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig("installer"))
			if err != nil {
				return err
			}
			values, err := options.Manifests()
			if err != nil {
				return err
			}
			if err := manifests.Install(cmd.Context(), config, values); err != nil {
				return err
			}
			var names []string
			for _, n := range c.Instance.Nodes(nodes) {
				names = append(names, n.Name())
			}
			return manifests.RemoveNodes(cmd.Context(), config, names)
		},
	}
	instanceFlag(cmd, &name)
	cmd.Flags().IntVar(&nodes, "nodes", 0, "how many nodes the cloud has")
	cmd.Flags().StringVar(&dnsImage, "dns-image", "", "image of the cluster's DNS servers")
	cmd.Flags().StringVar(&pool, "pool", "", "range of external addresses")
	cmd.Flags().StringVar(&peer, "peer", "", "router of the owner's, ASN@ADDRESS")
	return cmd
}
