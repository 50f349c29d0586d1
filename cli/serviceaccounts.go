package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

func newServiceAccountCommand(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serviceaccount",
		Aliases: []string{"sa"},
		Short:   "Make service accounts of a tenant, for programs, and lock them out",
		Long: `Make service accounts of a tenant, which programs are: pipelines, tools, controllers. The tenant's admins and owners
do that. A service account works in its tenant with its role, and nowhere else, by API tokens of its own
("mni token create NAME --service-account ACCOUNT"), which go on when the person who made them leaves.

Service accounts are resources as all others: "mni describe serviceaccount ci", "mni edit serviceaccount ci" and
"mni delete serviceaccount ci" are for the rest. With a service account its tokens go.`,
		Args: noArguments("%q: ls, create, disable or enable"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	list := listCommand(c, accountsResource.Resource, "List the service accounts of a tenant")
	cmd.AddCommand(list, newServiceAccountCreateCommand(c), newServiceAccountDisableCommand(c, "disable", true), newServiceAccountDisableCommand(c, "enable", false))
	for _, each := range cmd.Commands() {
		c.addTenantFlag(each, "t")
	}
	return cmd
}

func newServiceAccountCreateCommand(c *connection) *cobra.Command {
	var displayName, role string
	wait := true
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a service account",
		Long: `Make a service account, and wait until tokens can be made for it. A viewer sees everything but secrets, and logs. A
member also makes, changes and deletes. An admin also changes what the tenant is called; a service account of no role says
who the members are.`,
		Example: `  mni serviceaccount create ci --tenant red --role member
  mni token create pipeline --tenant red --service-account ci > token`,
		Args:              named(1, "give the service account one name"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(authv1.ServiceAccountRoles(), authv1.Role(role)) {
				return usagef("--role %s: a service account has no such role: %s", role, strings.Join(accountRoles(), ", "))
			}
			made := &authv1.ServiceAccount{
				ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Spec: authv1.ServiceAccountSpec{DisplayName: displayName, Role: authv1.Role(role)},
			}
			if err := create(cmd.Context(), c, accountsResource, made); err != nil {
				return err
			}
			fmt.Fprintf(c.streams.Out, "serviceaccount/%s created\n", made.Name)
			if !wait {
				return nil
			}
			return c.untilReady(cmd.Context(), accountsResource.GroupResource().String()+"/"+made.Name)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&role, "role", "", "what it may do: "+strings.Join(accountRoles(), ", "))
	flags.StringVar(&displayName, "display-name", "", "the service account's name for people")
	flags.BoolVar(&wait, "wait", true, "wait until tokens can be made for it")
	completeWords(cmd, "role", accountRoles()...)
	return cmd
}

// accountRoles are the roles of service accounts, in words.
func accountRoles() []string {
	var words []string
	for _, role := range authv1.ServiceAccountRoles() {
		words = append(words, string(role))
	}
	return words
}

func newServiceAccountDisableCommand(c *connection, name string, disabled bool) *cobra.Command {
	short, long := "Make the tokens of a service account good again", "Make the tokens of a service account good again that was disabled."
	if disabled {
		short = "Lock a service account out"
		long = "Lock a service account out: its tokens are good for nothing until it is enabled again, and none are made for it."
	}
	return &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Long:    long,
		Example: "  mni serviceaccount " + name + " ci",
		Args:    named(1, "give one service account's name"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.names(accountsResource.GroupResource().String(), word), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			if err := merge(cmd.Context(), c, accountsResource, args[0], map[string]any{"spec": map[string]any{"disabled": disabled}}); err != nil {
				return err
			}
			fmt.Fprintf(c.streams.Out, "serviceaccount/%s %sd\n", args[0], name)
			return nil
		}),
	}
}
