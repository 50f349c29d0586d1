package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deleting is one run of `mni delete`.
type deleting struct {
	*connection
	selection
	dryRun  string
	cascade bool
	yes     bool
	wait    bool
	timeout time.Duration
}

func newDeleteCommand(c *connection) *cobra.Command {
	d := &deleting{connection: c}
	cmd := &cobra.Command{
		Use:   "delete KIND NAME... | KIND/NAME... | KIND --all | -f FILE",
		Short: "Delete resources",
		Long: `Delete resources and wait until they are gone: single ones, all of a kind, those with a label, or
those that files name (the last one first).

What something else needs stays until that is deleted. On a terminal it shows what hangs on the
resources, asks whether to delete that too, and says what each one still waits for. With --cascade
all of it is deleted, what needs something before what it needs; --dry-run shows it.`,
		Example: `  # Single ones
  mni delete container web db
  mni delete subnet/front vpc/net

  # All Containers of the namespace; everything in it
  mni delete containers --all
  mni delete all --all

  # A Vpc with all that needs it; what that would be
  mni delete vpc net --cascade
  mni delete vpc net --cascade --dry-run

  # What a folder declares
  mni delete -f shop/`,
		SuggestFor:        []string{"rm", "remove"},
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			d.args = args
			return d.run(cmd.Context())
		}),
	}
	flags := cmd.Flags()
	addFileFlags(cmd, &d.files, "files or folders that name the resources")
	addDryRunFlag(cmd, &d.dryRun)
	flags.StringVarP(&d.labels, "selector", "l", "", "only those with these labels, as in app=web,tier!=db")
	flags.BoolVar(&d.all, "all", false, "all of the kinds given")
	flags.BoolVarP(&d.allNamespaces, "all-namespaces", "A", false, "in all namespaces")
	flags.BoolVar(&d.absentIsFine, "ignore-not-found", false, "be content when there is no such resource")
	flags.BoolVar(&d.cascade, "cascade", false, "also what needs them, in reverse order")
	flags.BoolVarP(&d.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&d.wait, "wait", true, "wait until they are gone")
	flags.DurationVar(&d.timeout, "timeout", 5*time.Minute, "how long to wait for all together; 0 is for ever")
	return cmd
}

// check refuses command lines that would delete more than they name.
func (d *deleting) check() error {
	switch {
	case len(d.args) == 0 && len(d.files.Filenames) == 0:
		return usagef("say what to delete: a kind and names, or -f FILE")
	case len(d.args) == 1 && !strings.Contains(d.args[0], "/") && !d.all && d.labels == "":
		return usagef("say which: names after %q, -l LABELS, or --all", d.args[0])
	}
	return nil
}

// run asks for the deletion of everything selected, then waits.
func (d *deleting) run(ctx context.Context) error {
	if err := d.check(); err != nil {
		return err
	}
	targets, notFound := d.targets(ctx, &d.selection)
	if len(targets) == 0 {
		if notFound == nil {
			fmt.Fprintln(d.streams.ErrOut, "nothing to delete")
		}
		return notFound
	}
	slices.Reverse(targets)
	targets, err := d.withDependents(ctx, targets)
	if err != nil {
		return errors.Join(notFound, err)
	}
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background, DryRun: dryRunOption(d.dryRun)}
	errs := []error{notFound}
	var asked []*target
	for _, t := range targets {
		switch err := t.client.Delete(ctx, t.name, options); {
		case err == nil:
			asked = append(asked, t)
		case !apierrors.IsNotFound(err):
			errs = append(errs, err)
		}
	}
	if d.dryRun == dryRunServer || !d.wait {
		what := "is asked to go"
		if d.dryRun == dryRunServer {
			what = "deleted (dry run)"
		}
		for _, t := range asked {
			fmt.Fprintf(d.streams.Out, "%s %s%s\n", t, what, d.elsewhere(t.namespace))
		}
		return errors.Join(errs...)
	}
	a := &awaiting{timeout: d.timeout, wish: "gone", progress: d.progress(), done: func(t *target) {
		fmt.Fprintf(d.streams.Out, "%s deleted%s\n", t, d.elsewhere(t.namespace))
	}}
	errs = append(errs, a.wait(ctx, asked, func(t *target) judgement { return isGone(t.uid) }))
	return errors.Join(errs...)
}
