package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/inspect"
	"github.com/mnicloud/mnicloud/services/vpc/backend/netbackend"
)

// Members finds the members of an instance's network that are on this machine.
type Members func(instance string) ([]inspect.Member, error)

// objectsTimeout bounds the wait for the API server: names are good to have, but a network without one is looked at too.
const objectsTimeout = 5 * time.Second

// netCommands is what the commands of `mni net` share.
type netCommands struct {
	*connection
	members Members
	// root tells whether the maps may be read.
	root func() bool
}

// newNetworkCommand is `mni net`, which looks at the network of this machine.
func newNetworkCommand(c *connection, members Members) *cobra.Command {
	n := &netCommands{connection: c, members: members, root: func() bool { return os.Geteuid() == 0 }}
	return n.command()
}

func (n *netCommands) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "net",
		Short: "Look into the network of this machine: drops, connections, routes, the way of a packet",
		Long: `Look into the network of this machine, as its owner: what was dropped and why, which connections
are known, which way a packet would go. Nothing is changed by looking.

The maps of the datapath are read directly (root only), so this works while the API server is down;
names are then missing.`,
	}
	cmd.AddCommand(n.statusCommand(), n.dropsCommand(), n.conntrackCommand(), n.routesCommand(), n.traceCommand())
	return cmd
}

// look opens the network for looking at it.
func (n *netCommands) look(ctx context.Context) (*inspect.Network, error) {
	if !n.root() {
		return nil, errors.New("this reads the maps of the datapath, which takes root's rights: run it with sudo")
	}
	instance, _ := n.instanceName()
	members, err := n.members(instance)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, objectsTimeout)
	defer cancel()
	objects, err := n.objects(ctx, instance)
	if err != nil {
		fmt.Fprintf(n.streams.ErrOut, "Warning: names are missing, as the API server does not tell them: %v\n", n.explain(err))
		objects = &inspect.Objects{}
	}
	return &inspect.Network{Members: members, Objects: objects}, nil
}

func (n *netCommands) objects(ctx context.Context, instance string) (*inspect.Objects, error) {
	config, err := n.ownersConfig(instance)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), netv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	return inspect.Read(ctx, api, tenantsName)
}

// ownersConfig is for the API server of the instance whose maps are read, whatever KUBECONFIG says.
func (n *netCommands) ownersConfig(instance string) (*rest.Config, error) {
	silenceLibraries()
	file := n.kubeconfig
	if file == "" {
		file = filepath.Join(n.machine.state, instance, ownerKubeconfig)
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, err
	}
	config.UserAgent = n.userAgent
	return config, nil
}

// tenantsName is NAMESPACE/NAME of what a tenant declared, the object's own name otherwise.
func tenantsName(o client.Object) string {
	namespace, name := o.GetLabels()[netbackend.LabelNamespace], o.GetLabels()[netbackend.LabelName]
	if namespace == "" || name == "" {
		return o.GetName()
	}
	return namespace + "/" + name
}

// filterFlags adds the flags that choose among interfaces.
func (n *netCommands) filterFlags(cmd *cobra.Command, f *inspect.Filter) {
	cmd.Flags().StringVar(&f.Node, "node", "", "only on this node")
	cmd.Flags().StringVar(&f.VPC, "vpc", "", "only of this VPC: NAMESPACE/NAME, or a name that mni net status shows")
	cmd.Flags().StringVarP(&f.Namespace, "namespace", "n", "", "only of Pods of this namespace")
	cmd.Flags().StringVar(&f.Pod, "pod", "", "only of the Pod of this name")
	n.completeNodes(cmd)
	n.complete(cmd, "vpc", func(seen *inspect.Network) []string { return seen.Objects.VPCNames() })
	n.complete(cmd, "namespace", func(*inspect.Network) []string { return n.names("namespaces", "") })
}

func (n *netCommands) completeNodes(cmd *cobra.Command) {
	n.complete(cmd, "node", func(seen *inspect.Network) []string { return seen.MemberNames() })
}

// complete completes a flag with what is seen of the network.
func (n *netCommands) complete(cmd *cobra.Command, flag string, words func(*inspect.Network) []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return n.words(cmd.Context(), word, words)
	})
	if err != nil {
		panic(err)
	}
}

func (n *netCommands) words(ctx context.Context, word string, words func(*inspect.Network) []string) ([]string, cobra.ShellCompDirective) {
	quiet := *n
	copied := *n.connection
	quiet.connection = &copied
	quiet.streams.ErrOut = discard{}
	seen, err := quiet.look(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return startingWith(words(seen), word), cobra.ShellCompDirectiveNoFileComp
}
