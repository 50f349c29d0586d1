package cli

import (
	"github.com/spf13/cobra"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/cmd/util/editor"
)

func newEditCommand(c *connection) *cobra.Command {
	o := editor.NewEditOptions(editor.NormalEditMode, c.streams)
	o.FieldManager = editManager
	cmd := &cobra.Command{
		Use:   "edit KIND NAME | KIND/NAME",
		Short: "Change a resource in an editor",
		Long: `Change a resource in an editor: the one that KUBE_EDITOR or EDITOR names, or vi. What you save is applied;
when it is refused the editor opens again, with the reason at the top. Saving nothing else changes
nothing.`,
		Example: `  mni edit container web
  EDITOR=nano mni edit subnet/front`,
		ValidArgsFunction: c.completeKindsAndNames,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && len(o.Filenames) == 0 {
				return usagef("say what to edit: KIND NAME, as in `mni edit container web`")
			}
			if err := o.Complete(c.factory(), args, cmd); err != nil {
				return err
			}
			return o.Run()
		}),
	}
	cmdutil.AddValidateFlags(cmd)
	hide(cmd, "validate")
	o.PrintFlags.AddFlags(cmd)
	cmd.Flags().Lookup("output").Usage = "the form in which it is edited: yaml, json"
	hide(cmd, "allow-missing-template-keys", "show-managed-fields", "template")
	completeWords(cmd, "output", "yaml", "json")
	return cmd
}
