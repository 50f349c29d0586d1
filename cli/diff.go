package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilexec "k8s.io/utils/exec"
	"sigs.k8s.io/yaml"
)

// Exit codes of `mni diff`.
const (
	exitDiffers     = 1
	exitCannotTell  = 2
	diffContext     = 3
	hiddenInDiff    = "(hidden)"
	hiddenOneInDiff = "(hidden, another one)"
)

func newDiffCommand(c *connection) *cobra.Command {
	a := &applying{connection: c, dryRun: dryRunServer}
	cmd := &cobra.Command{
		Use:   "diff -f FILE|FOLDER|-",
		Short: "Show what apply would change",
		Long: `Show what "mni apply" of the same files would change: how each resource is, and how it would be. The
cloud checks everything, as apply does, and changes nothing.

Exit codes: 0 nothing would change, 1 something would, 2 it cannot be told (an error).`,
		Example: `  mni diff -f web.yaml
  cat web.yaml | mni diff -f -

  # In a script: apply only what differs
  mni diff -f web.yaml >/dev/null || mni apply -f web.yaml`,
		Args:              noArguments("files are given with -f, as in `mni diff -f %s`"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, _ []string) error {
			if len(a.files.Filenames) == 0 {
				return usagef("say what to compare: -f FILE, -f FOLDER, or -f - for standard input")
			}
			return a.diff(cmd.Context())
		}),
	}
	addFileFlags(cmd, &a.files, "files or folders to compare")
	cmd.Flags().BoolVar(&a.forceConflicts, "force-conflicts", false, "as if fields that something else has set were taken over")
	return cmd
}

// diff prints what each document would change.
func (a *applying) diff(ctx context.Context) error {
	documents, errs := readDocuments(&a.files, a.streams.In)
	differs := false
	if len(documents) > 0 {
		client, err := a.factory().DynamicClient()
		if err != nil {
			return a.cannotTell(err)
		}
		for _, d := range documents {
			before, after, err := a.send(ctx, client, d)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			text, err := difference(before, after, a.named(d), d.at(""))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			differs = differs || text != ""
			fmt.Fprint(a.streams.Out, text)
		}
	}
	switch {
	case len(errs) > 0:
		return a.cannotTell(errs...)
	case differs:
		return utilexec.CodeExitError{Err: errShown, Code: exitDiffers}
	}
	return nil
}

// named is the resource as it is in the cloud.
func (a *applying) named(d *document) string {
	return display(d.object.GroupVersionKind().GroupKind(), d.object.GetName()) + a.elsewhere(d.object.GetNamespace())
}

// cannotTell prints the errors that were in the way.
func (a *applying) cannotTell(errs ...error) error {
	for _, err := range errs {
		a.complain(err)
	}
	return utilexec.CodeExitError{Err: errShown, Code: exitCannotTell}
}

// difference is a unified diff of what people write of an object; empty when there is none. Secrets show only that they differ.
func difference(before, after *unstructured.Unstructured, was, declared string) (string, error) {
	hideSecrets(before, after)
	from, err := written(before)
	if err != nil {
		return "", err
	}
	to, err := written(after)
	if err != nil {
		return "", err
	}
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: lines(from), B: lines(to), FromFile: was, ToFile: declared, Context: diffContext,
	})
}

// lines keep their ends; of nothing there are none.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return difflib.SplitLines(strings.TrimSuffix(text, "\n"))
}

// written is an object's YAML without what the API server alone sets; empty when there is no object.
func written(o *unstructured.Unstructured) (string, error) {
	if o == nil {
		return "", nil
	}
	o = o.DeepCopy()
	clearServerFields(o)
	text, err := yaml.Marshal(o.Object)
	return string(text), err
}

// secretFields are what is not shown, by kind.
var secretFields = map[string][][]string{
	"Secret":                {{"data"}},
	"User.auth.mnicloud.jp": {{"spec", "password"}},
}

// hideSecrets puts words in the place of secrets that tell whether they are the same.
func hideSecrets(before, after *unstructured.Unstructured) {
	for _, path := range secretFields[after.GroupVersionKind().GroupKind().String()] {
		present, was, _ := nested(before, path)
		declared, is, _ := nested(after, path)
		word := hiddenOneInDiff
		if was && is && fmt.Sprint(present) == fmt.Sprint(declared) {
			word = hiddenInDiff
		}
		if was {
			_ = unstructured.SetNestedField(before.Object, hiddenInDiff, path...)
		}
		if is {
			_ = unstructured.SetNestedField(after.Object, word, path...)
		}
	}
}

func nested(o *unstructured.Unstructured, path []string) (any, bool, error) {
	if o == nil {
		return nil, false, errors.New("there is none")
	}
	return unstructured.NestedFieldNoCopy(o.Object, path...)
}
