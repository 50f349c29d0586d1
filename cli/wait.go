package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/kit/status"
)

func newWaitCommand(c *connection) *cobra.Command {
	var s selection
	var wish string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "wait [KIND [NAME...] | KIND/NAME... | -f FILE]",
		Short: "Wait until resources are Ready",
		Long: `Wait until resources are Ready, or until --for has come true: all of the namespace, those of
some kinds, single ones, or those that files name.

On a terminal it says what is waited for. When the time is up it says why each one is not
Ready, and the exit code is 1.`,
		Example: `  # Everything in the namespace; everything that a folder declares
  mni wait
  mni wait -f shop/

  # Single ones
  mni wait container web db --timeout 30s
  mni wait vpc/net subnet/front

  # Another condition; until a Container is gone
  mni wait container web --for condition=Stalled
  mni wait container web --for delete`,
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			a := &awaiting{timeout: timeout, progress: c.progress(), goneIsFailure: true}
			judge, err := a.parse(wish)
			if err != nil {
				return err
			}
			s.args = args
			if len(args) == 0 && len(s.files.Filenames) == 0 {
				s.args = []string{category}
			}
			s.absentIsFine = !a.goneIsFailure
			targets, err := c.targets(cmd.Context(), &s)
			if err != nil {
				return err
			}
			if len(targets) == 0 && a.goneIsFailure {
				return errors.New("nothing to wait for")
			}
			a.done = func(t *target) {
				fmt.Fprintf(c.streams.Out, "%s is %s%s\n", t, a.wish, c.elsewhere(t.namespace))
			}
			return a.wait(cmd.Context(), targets, judge)
		}),
	}
	flags := cmd.Flags()
	addFileFlags(cmd, &s.files, "files or folders that name the resources")
	flags.StringVar(&wish, "for", "condition="+status.ConditionReady, "condition=TYPE, condition=TYPE=STATUS, or delete")
	flags.DurationVar(&timeout, "timeout", 2*time.Minute, "how long to wait for all together; 0 is for ever")
	flags.StringVarP(&s.labels, "selector", "l", "", "only those with these labels, as in app=web,tier!=db")
	flags.BoolVarP(&s.allNamespaces, "all-namespaces", "A", false, "in all namespaces")
	flags.BoolVar(&s.all, "all", false, "all of the kinds given (as when no names are given)")
	completeWords(cmd, "for", "condition=Ready", "delete")
	return cmd
}

// parse understands --for.
func (a *awaiting) parse(wish string) (func(*target) judgement, error) {
	what, rest, _ := strings.Cut(wish, "=")
	switch {
	case what == "delete" && rest == "":
		a.wish, a.goneIsFailure = "gone", false
		return func(t *target) judgement { return isGone(t.uid) }, nil
	case what == "condition" && rest != "":
		kind, value, given := strings.Cut(rest, "=")
		if !given {
			value = string(metav1.ConditionTrue)
		}
		a.wish = kind
		if value != string(metav1.ConditionTrue) {
			a.wish = kind + "=" + value
		}
		judge := conditionIs(kind, value)
		if kind == status.ConditionReady && value == string(metav1.ConditionTrue) {
			judge = isReady
		}
		return func(*target) judgement { return judge }, nil
	}
	return nil, usagef("--for=%s is not understood: condition=TYPE, condition=TYPE=STATUS, or delete", wish)
}
