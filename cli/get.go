package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/kubectl/pkg/cmd/get"
)

func newGetCommand(c *connection) *cobra.Command {
	o := get.NewGetOptions("mni", c.streams)
	cmd := &cobra.Command{
		Use:   "get [KIND [NAME...] | KIND/NAME...]",
		Short: "List resources",
		Long: `List resources: all of the namespace's VPCs, subnets, containers and so on, those of one or
several kinds, or single ones.`,
		Example: `  # Everything in the namespace
  mni get

  # Containers with the message that says why they are as they are
  mni get containers -o wide

  # Everything, then each change
  mni get -w

  # Vpcs and Subnets; one Subnet as YAML; the address of a Container
  mni get vpc,subnet
  mni get subnet front -o yaml
  mni get container web -o jsonpath='{.status.address}'

  # The Containers of all namespaces that have a label
  mni get containers -A -l app=web`,
		SuggestFor:        []string{"list", "ls"},
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && len(o.Filenames) == 0 {
				args = []string{category}
			}
			args = everythingWord(args)
			if err := o.Complete(c.factory(), cmd, args); err != nil {
				return err
			}
			if err := o.Validate(); err != nil {
				return &usageError{err}
			}
			if _, err := o.PrintFlags.ToPrinter(); genericclioptions.IsNoCompatiblePrinterError(err) {
				return usagef("-o %s is not a format: %s", *o.PrintFlags.OutputFormat, strings.Join(o.PrintFlags.AllowedFormats(), ", "))
			}
			o.ToPrinter = shortKinds(o.ToPrinter)
			if o.Watch || o.WatchOnly {
				return (&watching{connection: c, options: o}).run(cmd.Context(), args)
			}
			return o.Run(c.factory(), args)
		}),
	}
	o.PrintFlags.AddFlags(cmd)
	flags := cmd.Flags()
	flags.Lookup("output").Usage = "how to print: " + strings.Join(o.PrintFlags.AllowedFormats(), ", ")
	flags.Lookup("show-labels").Usage = "print labels as the last column"
	flags.Lookup("sort-by").Usage = "sort by a field, as in {.metadata.name}"
	flags.Lookup("no-headers").Usage = "print tables without headers"
	flags.Lookup("label-columns").Usage = "labels to print as columns of their own"
	hide(cmd, "allow-missing-template-keys", "show-kind", "show-managed-fields", "template")
	flags.BoolVarP(&o.Watch, "watch", "w", false, "after listing, print each change")
	flags.BoolVar(&o.WatchOnly, "watch-only", false, "print each change without listing first")
	flags.BoolVar(&o.IgnoreNotFound, "ignore-not-found", false, "be silent about what does not exist")
	flags.BoolVarP(&o.AllNamespaces, "all-namespaces", "A", false, "in all namespaces")
	flags.StringVarP(&o.LabelSelector, "selector", "l", "", "only those with these labels, as in app=web,tier!=db")
	flags.StringVar(&o.FieldSelector, "field-selector", "", "only those with these fields, as in metadata.name=web")
	addFileFlags(cmd, &o.FilenameOptions, "files or folders that name the resources")
	return cmd
}

// shortKinds prints tenants' kinds without their API group: "vpc/net".
func shortKinds(toPrinter printerFunc) printerFunc {
	return func(mapping *meta.RESTMapping, outputObjects *bool, withNamespace, withKind bool) (printers.ResourcePrinterFunc, error) {
		if mapping != nil && ofTenants(mapping.GroupVersionKind.Group) {
			short := *mapping
			short.GroupVersionKind = schema.GroupVersionKind{Kind: mapping.GroupVersionKind.Kind}
			mapping = &short
		}
		return toPrinter(mapping, outputObjects, withNamespace, withKind)
	}
}

type printerFunc = func(*meta.RESTMapping, *bool, bool, bool) (printers.ResourcePrinterFunc, error)

// hide keeps flags out of the help.
func hide(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		if err := cmd.Flags().MarkHidden(name); err != nil {
			panic(fmt.Sprintf("command %s: %v", cmd.Name(), err))
		}
	}
}
