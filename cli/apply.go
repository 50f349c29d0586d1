package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/dynamic"
)

// fieldManager is who the API server notes as the one that set a field.
const fieldManager = "mni"

// editManager is the same of what was changed in an editor.
const editManager = fieldManager + "-edit"

// applying is one run of `mni apply`.
type applying struct {
	*connection
	files          resource.FilenameOptions
	dryRun         string
	output         string
	forceConflicts bool
}

func newApplyCommand(c *connection) *cobra.Command {
	a := &applying{connection: c}
	cmd := &cobra.Command{
		Use:   "apply -f FILE|FOLDER|-",
		Short: "Make resources as files declare them",
		Long: `Make resources as files declare them: those that are not there are created, others changed.

Files are YAML or JSON with any number of documents; Namespaces go first. Each document is
tried; when one fails the others are still applied, and the exit code is 1. Only the fields
that you write are yours: a field that something else than mni has set since is a conflict.`,
		Example: `  # A file, a folder, standard input
  mni apply -f web.yaml
  mni apply -f shop/
  cat web.yaml | mni apply -f -

  # Try: the cloud checks everything and changes nothing
  mni apply -f web.yaml --dry-run`,
		Args:              noArguments("files are given with -f, as in `mni apply -f %s`"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, _ []string) error {
			if len(a.files.Filenames) == 0 {
				return usagef("say what to apply: -f FILE, -f FOLDER, or -f - for standard input")
			}
			return a.run(cmd.Context())
		}),
	}
	addFileFlags(cmd, &a.files, "files or folders to apply")
	flags := cmd.Flags()
	addDryRunFlag(cmd, &a.dryRun)
	flags.StringVarP(&a.output, "output", "o", "", "how to print what was applied: name, yaml, json")
	flags.BoolVar(&a.forceConflicts, "force-conflicts", false, "take over fields that something else has set")
	return cmd
}

// run applies all documents and prints what became of each.
func (a *applying) run(ctx context.Context) error {
	printer, err := a.printer()
	if err != nil {
		return err
	}
	documents, errs := readDocuments(&a.files, a.streams.In)
	for _, err := range errs {
		a.complain(err)
	}
	failed, all := len(errs), len(errs)+len(documents)
	if len(documents) > 0 {
		client, err := a.factory().DynamicClient()
		if err != nil {
			return err
		}
		slices.SortStableFunc(documents, func(x, y *document) int { return applyRank(x) - applyRank(y) })
		for _, d := range documents {
			err := a.one(ctx, client, d, printer)
			if err == nil {
				continue
			}
			if _, unreachable := a.unreachable(err); unreachable || ctx.Err() != nil {
				return err
			}
			a.complain(err)
			failed++
		}
	}
	switch {
	case failed == 0:
		return nil
	case all == 1:
		return errShown
	}
	return fmt.Errorf("%d of %d documents could not be applied", failed, all)
}

// applyRank puts Namespaces before what is in them.
func applyRank(d *document) int {
	if d.object.GroupVersionKind() == corev1.SchemeGroupVersion.WithKind("Namespace") {
		return 0
	}
	return 1
}

// printer prints an object that was applied, with what became of it.
func (a *applying) printer() (func(o *unstructured.Unstructured, what string) error, error) {
	var printer printers.ResourcePrinter
	switch a.output {
	case "":
		return func(o *unstructured.Unstructured, what string) error {
			if a.dryRun == dryRunServer {
				what += " (dry run)"
			}
			_, err := fmt.Fprintf(a.streams.Out, "%s %s%s\n", display(o.GroupVersionKind().GroupKind(), o.GetName()), what, a.elsewhere(o.GetNamespace()))
			return err
		}, nil
	case "name":
		printer = &printers.NamePrinter{}
	case "yaml":
		printer = &printers.YAMLPrinter{}
	case "json":
		printer = &printers.JSONPrinter{}
	default:
		return nil, usagef("-o %s is not a format of this command: name, yaml or json", a.output)
	}
	printer = &printers.OmitManagedFieldsPrinter{Delegate: printer}
	return func(o *unstructured.Unstructured, _ string) error { return printer.PrintObj(o, a.streams.Out) }, nil
}

// elsewhere names a namespace that is not the one worked in.
func (c *connection) elsewhere(namespace string) string {
	if here, _, err := c.ToRawKubeConfigLoader().Namespace(); namespace == "" || err != nil || namespace == here {
		return ""
	}
	return " in namespace " + namespace
}

// one applies one document.
func (a *applying) one(ctx context.Context, client dynamic.Interface, d *document, done func(*unstructured.Unstructured, string) error) error {
	before, after, err := a.send(ctx, client, d)
	if err != nil {
		return err
	}
	what := "configured"
	switch {
	case before == nil:
		what = "created"
	case sameContent(before, after):
		what = "unchanged"
	}
	return done(after, what)
}

// send applies one document, or tries to, and returns what was there, if anything, and what is there now, or would be.
func (a *applying) send(ctx context.Context, client dynamic.Interface, d *document) (before, after *unstructured.Unstructured, err error) {
	mapping, err := a.place(d)
	if err != nil {
		return nil, nil, err
	}
	target := clientFor(client, mapping, d.object.GetNamespace())
	clearServerFields(d.object)
	before, err = target.Get(ctx, d.object.GetName(), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return nil, nil, a.refusal(d, err)
	}
	if err != nil {
		before = nil
	}
	force, object := a.forceConflicts, d.object
	if !force && setByCommands(before) {
		if _, err := patch(ctx, target, object, false, dryRunServer); conflictsWithCommandsOnly(err) {
			// Nobody else's fields are taken over: what has changed since was not looked at, and is a conflict.
			force, object = true, object.DeepCopy()
			object.SetResourceVersion(before.GetResourceVersion())
		}
	}
	after, err = patch(ctx, target, object, force, a.dryRun)
	if err != nil {
		return nil, nil, a.refusal(d, err)
	}
	return before, after, nil
}

func patch(ctx context.Context, target dynamic.ResourceInterface, o *unstructured.Unstructured, force bool, dryRun string) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	options := metav1.PatchOptions{FieldManager: fieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict, DryRun: dryRunOption(dryRun)}
	return target.Patch(ctx, o.GetName(), types.ApplyPatchType, data, options)
}

// commandManagers are who the API server notes for what other commands than apply set. Files go over that, as they go over what an earlier
// apply has set; what they do not mention stays.
var commandManagers = []string{fieldManager, editManager}

// setByCommands tells whether other commands have set fields of an object, which may be nil.
func setByCommands(o *unstructured.Unstructured) bool {
	return o != nil && slices.ContainsFunc(o.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool {
		return e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" && slices.Contains(commandManagers, e.Manager)
	})
}

// conflictsWithCommandsOnly tells whether an object was not applied because of fields that other commands have set, and nobody else.
func conflictsWithCommandsOnly(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsConflict(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	return len(causes) > 0 && !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
		return c.Type != metav1.CauseTypeFieldManagerConflict || !slices.ContainsFunc(commandManagers, func(manager string) bool {
			// An Update's manager is followed by the version that it used, an Apply's by nothing.
			return strings.HasPrefix(c.Message, fmt.Sprintf("conflict with %q using ", manager))
		})
	})
}

// clearServerFields takes out what only the API server and the controllers set, so that what `mni get -o yaml` printed can be applied.
func clearServerFields(o *unstructured.Unstructured) {
	for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink", "finalizers"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	unstructured.RemoveNestedField(o.Object, "status")
}

// sameContent tells whether applying changed nothing but its bookkeeping.
func sameContent(before, after *unstructured.Unstructured) bool {
	before, after = before.DeepCopy(), after.DeepCopy()
	clearServerFields(before)
	clearServerFields(after)
	return equality.Semantic.DeepEqual(before.Object, after.Object)
}

// complain prints an error while the command goes on.
func (c *connection) complain(err error) {
	printError(c.flags, c.streams.ErrOut, c.explain(err))
}
