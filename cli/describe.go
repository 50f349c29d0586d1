package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/resource"
	cmddescribe "k8s.io/kubectl/pkg/cmd/describe"
	"k8s.io/kubectl/pkg/describe"
)

func newDescribeCommand(c *connection) *cobra.Command {
	o := &cmddescribe.DescribeOptions{
		IOStreams:         c.streams,
		FilenameOptions:   &resource.FilenameOptions{},
		DescriberSettings: &describe.DescriberSettings{ShowEvents: true, ChunkSize: 500},
		Describer:         c.describer,
		// Events are shown for many objects too, unless --events says otherwise.
		ShowEventsExplicitlySet: true,
	}
	cmd := &cobra.Command{
		Use:   "describe KIND [NAME...] | KIND/NAME...",
		Short: "Show resources in detail, with conditions and events",
		Long: `Show resources in detail: what was declared, how it is, the conditions that say why, and the
events that led there. A name may be the beginning of one.`,
		Example: `  # Why is this Container not Ready?
  mni describe container web

  # All Subnets of the namespace
  mni describe subnets`,
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: c.run(func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && len(o.FilenameOptions.Filenames) == 0 {
				return usagef("say what to describe: a kind, with or without names")
			}
			namespace, enforce, err := c.ToRawKubeConfigLoader().Namespace()
			if err != nil {
				return err
			}
			o.Namespace, o.EnforceNamespace = namespace, enforce && !o.AllNamespaces
			o.BuilderArgs = everythingWord(args)
			o.NewBuilder = c.factory().NewBuilder
			return o.Run()
		}),
	}
	flags := cmd.Flags()
	addFileFlags(cmd, o.FilenameOptions, "files or folders that name the resources")
	flags.StringVarP(&o.Selector, "selector", "l", "", "only those with these labels, as in app=web,tier!=db")
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "in all namespaces")
	flags.BoolVar(&o.DescriberSettings.ShowEvents, "events", true, "show events")
	return cmd
}

// describer describes the cloud's own kinds in one form, others as kubectl does.
func (c *connection) describer(mapping *meta.RESTMapping) (describe.ResourceDescriber, error) {
	if !ofCloud(mapping.GroupVersionKind.Group) {
		return describe.DescriberFn(c.factory(), mapping)
	}
	dynamicClient, err := c.factory().DynamicClient()
	if err != nil {
		return nil, err
	}
	kubernetesClient, err := c.factory().KubernetesClientSet()
	if err != nil {
		return nil, err
	}
	return &resourceDescriber{mapping: mapping, dynamic: dynamicClient, events: kubernetesClient.CoreV1()}, nil
}
