package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/cmd/apiresources"
	"k8s.io/kubectl/pkg/cmd/explain"
)

func newExplainCommand(c *connection) *cobra.Command {
	flags := explain.NewExplainFlags(c.streams)
	cmd := &cobra.Command{
		Use:   "explain KIND[.FIELD...]",
		Short: "Explain the fields of a kind",
		Long:  `Explain the fields of a kind: what each means, its type and what may be in it.`,
		Example: `  mni explain vpc
  mni explain container.spec.probes
  mni explain subnet --recursive`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("give one kind, as in `mni explain container.spec`: `mni api-resources` lists them")
			}
			return nil
		},
		ValidArgsFunction: c.completeKind,
		RunE: c.run(func(_ *cobra.Command, args []string) error {
			o, err := flags.ToOptions(c.factory(), "mni", args)
			if err != nil {
				return err
			}
			return o.Run()
		}),
	}
	cmd.Flags().BoolVarP(&flags.Recursive, "recursive", "R", false, "only the names and types, of all levels")
	cmd.Flags().StringVar(&flags.APIVersion, "api-version", "", "of this API group and version, as in net.mnicloud.jp/v1alpha1")
	return cmd
}

func newAPIResourcesCommand(c *connection) *cobra.Command {
	o := apiresources.NewAPIResourceOptions(c.streams)
	all := false
	cmd := &cobra.Command{
		Use:   "api-resources",
		Short: "List the kinds of resources",
		Long:  `List the kinds of resources that tenants use, with their short names and API groups.`,
		Example: `  mni api-resources
  mni api-resources --all -o wide`,
		Args:              noArguments("%q: this command takes no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			if !all {
				o.Categories = []string{category}
			}
			if err := o.Complete(c, cmd, args); err != nil {
				return err
			}
			return o.RunAPIResources()
		}),
	}
	cmd.Flags().BoolVar(&all, "all", false, "also Kubernetes' own and the cloud's internal kinds")
	cmd.Flags().StringVarP(o.PrintFlags.OutputFormat, "output", "o", "", "how to print: name, wide")
	cmd.Flags().BoolVar(o.PrintFlags.NoHeaders, "no-headers", false, "print without headers")
	completeWords(cmd, "output", "name", "wide")
	return cmd
}
