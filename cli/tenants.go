package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/mnicloud/mnicloud/cli/account"
	"github.com/mnicloud/mnicloud/kit/status"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// roles of members, from the one that may do most.
var roles = []string{"owner", "admin", "member", "viewer"}

func newTenantCommand(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tenant",
		Short: "Choose the tenant to work in; make tenants, and say who their members are",
		Long: `Choose the tenant to work in; make tenants, and say who their members are.

Tenants are resources as all others: "mni get tenants", "mni describe tenant red", "mni edit tenant red" and
"mni delete tenant red" are for the rest.`,
		Args: noArguments("%q: ls, use, create, add or remove"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listCommand(c, "tenants", "List the tenants that you may see"), newTenantUseCommand(c), newTenantCreateCommand(c),
		newTenantAddCommand(c), newTenantRemoveCommand(c))
	return cmd
}

// listCommand is `mni get` of one of the kinds of services/auth.
func listCommand(c *connection, kind, short string) *cobra.Command {
	get := newGetCommand(c)
	run := get.RunE
	get.Use, get.Aliases, get.SuggestFor, get.Short, get.Long = "ls", []string{"list"}, nil, short, short+", as `mni get "+kind+"` does."
	get.Example = ""
	get.Args = noArguments("%q: this command takes no arguments")
	get.ValidArgsFunction = cobra.NoFileCompletions
	get.RunE = func(cmd *cobra.Command, _ []string) error {
		return run(cmd, []string{kind + "." + authv1.GroupVersion.Group})
	}
	hide(get, "all-namespaces", "filename", "recursive")
	return get
}

// named demands so many arguments, in words.
func named(n int, usage string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s", usage)
		}
		return nil
	}
}

func newTenantUseCommand(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "use TENANT",
		Short: "Work in a tenant unless -t says another",
		Long: `Work in a tenant from now on, unless -t says another. It is kept with your login; "mni whoami" shows it.
Without an argument it is chosen anew each time: your only one, or -t.`,
		Example: `  mni tenant use red`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("give one tenant's name, or none")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return c.tenantNames(word), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			return c.useTenant(cmd.Context(), strings.Join(args, ""))
		}),
	}
}

func (c *connection) useTenant(ctx context.Context, tenant string) error {
	source, err := c.openSession(ctx)
	if err != nil {
		return err
	}
	id, err := whoAmI(ctx, source)
	if err != nil {
		return err
	}
	if err := isTenant(id, tenant); err != nil {
		return err
	}
	store, err := account.UserStore()
	if err != nil {
		return err
	}
	if err := store.SetTenant(c.session.profile, tenant); err != nil {
		return err
	}
	session := source.Session()
	fmt.Fprintln(c.streams.Out, tenantsLine(id, tenant))
	fmt.Fprintf(c.streams.Out, "Logged in to %s as %s%s.\n", session.Server, session.Who(), ofProfile(c.session.profile))
	return nil
}

func newTenantCreateCommand(c *connection) *cobra.Command {
	var owners []string
	var displayName string
	var quota map[string]string
	wait := true
	cmd := &cobra.Command{
		Use:   "create NAME --owner USER",
		Short: "Make a tenant (administrators of the cloud)",
		Long: `Make a tenant, with its first owners, and wait until it can be worked in. What is not said in --quota has
the cloud's default.`,
		Example: `  mni tenant create red --owner ada --display-name "Red Ltd."
  mni tenant create blue --owner bob --quota cpu=8,memory=32Gi,vpcs=3`,
		Args:              named(1, "give the tenant one name"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			limits, err := parseQuota(quota)
			if err != nil {
				return err
			}
			tenant := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Spec: authv1.TenantSpec{DisplayName: displayName, Quota: limits}}
			for _, owner := range owners {
				tenant.Spec.Members = append(tenant.Spec.Members, authv1.Member{User: owner, Role: authv1.RoleOwner})
			}
			if err := create(cmd.Context(), c, tenantsResource, tenant); err != nil {
				return err
			}
			fmt.Fprintf(c.streams.Out, "tenant/%s created\n", tenant.Name)
			if !wait {
				return nil
			}
			return c.untilReady(cmd.Context(), tenantsResource.GroupResource().String()+"/"+tenant.Name)
		}),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&owners, "owner", nil, "User who owns the tenant; may be given several times")
	flags.StringVar(&displayName, "display-name", "", "the tenant's name for people")
	flags.BoolVar(&wait, "wait", true, "wait until it can be worked in")
	flags.StringToStringVar(&quota, "quota", nil, "how much it may have: cpu, memory, storage, workloads, vpcs, externalIPs, objects")
	return cmd
}

// readyTimeout is how long a resource that was just made may take to be Ready.
const readyTimeout = time.Minute

// untilReady waits until a resource, KIND/NAME, is Ready.
func (c *connection) untilReady(ctx context.Context, resource string) error {
	targets, err := c.targets(ctx, &selection{args: []string{resource}})
	if err != nil {
		return err
	}
	a := &awaiting{timeout: readyTimeout, progress: c.progress(), goneIsFailure: true, wish: status.ConditionReady, done: func(*target) {}}
	return a.wait(ctx, targets, func(*target) judgement { return isReady })
}

// parseQuota reads limits as the command line gives them.
func parseQuota(given map[string]string) (*authv1.Quota, error) {
	if len(given) == 0 {
		return nil, nil
	}
	quota := &authv1.Quota{}
	amounts := map[string]**resource.Quantity{"cpu": &quota.CPU, "memory": &quota.Memory, "storage": &quota.Storage}
	numbers := map[string]**int64{"workloads": &quota.Workloads, "vpcs": &quota.VPCs, "externalIPs": &quota.ExternalIPs, "objects": &quota.Objects}
	for name, text := range given {
		amount, isAmount := amounts[name]
		number, isNumber := numbers[name]
		value, err := resource.ParseQuantity(text)
		switch {
		case !isAmount && !isNumber:
			return nil, usagef("--quota %s: there is no such limit: cpu, memory, storage, workloads, vpcs, externalIPs, objects", name)
		case err != nil || value.Sign() < 0:
			return nil, usagef("--quota %s=%s: it must be a quantity, as 4, 500m or 16Gi", name, text)
		case isAmount:
			*amount = &value
		default:
			whole, exact := value.AsInt64()
			if !exact {
				return nil, usagef("--quota %s=%s: it must be a whole number", name, text)
			}
			*number = &whole
		}
	}
	return quota, nil
}

func newTenantAddCommand(c *connection) *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:   "add TENANT USER --role ROLE",
		Short: "Make a User a member of a tenant, or give a member another role",
		Long: `Make a User a member of a tenant, or give a member another role.

A viewer sees everything but secrets, and logs. A member also makes, changes and deletes. An admin also says who the
members are. An owner also says who the owners are, and deletes the tenant.`,
		Example:           `  mni tenant add red bob --role viewer`,
		Args:              named(2, "say who becomes a member of what: TENANT USER"),
		ValidArgsFunction: c.completeMember,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(roles, role) {
				return usagef("--role %s: there is no such role: %s", role, strings.Join(roles, ", "))
			}
			member := authv1.Member{User: args[1], Role: authv1.Role(role)}
			err := c.changeMembers(cmd.Context(), args[0], func(members []authv1.Member) ([]authv1.Member, string, error) {
				for i, m := range members {
					if m.User == member.User {
						members[i].Role = member.Role
						return members, fmt.Sprintf("%s is %s of %s now, and was %s", member.User, member.Role, args[0], m.Role), nil
					}
				}
				return append(members, member), fmt.Sprintf("%s is %s of %s now", member.User, member.Role, args[0]), nil
			})
			if err == nil && c.isMissing(cmd.Context(), args[0], member.User) {
				fmt.Fprintf(c.streams.ErrOut, "note: there is no User %s yet: look at the name, or have the cloud's administrator make the User\n", member.User)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&role, "role", "member", "what it may do: "+strings.Join(roles, ", "))
	completeWords(cmd, "role", roles...)
	return cmd
}

func newTenantRemoveCommand(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:               "remove TENANT USER",
		Aliases:           []string{"rm"},
		Short:             "Take a member out of a tenant",
		Long:              `Take a member out of a tenant. It has no rights there from the next request on.`,
		Example:           `  mni tenant remove red bob`,
		Args:              named(2, "say who leaves what: TENANT USER"),
		ValidArgsFunction: c.completeMember,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			return c.changeMembers(cmd.Context(), args[0], func(members []authv1.Member) ([]authv1.Member, string, error) {
				left := slices.DeleteFunc(slices.Clone(members), func(m authv1.Member) bool { return m.User == args[1] })
				if len(left) == len(members) {
					return nil, "", fmt.Errorf("%s is no member of tenant %s", args[1], args[0])
				}
				return left, fmt.Sprintf("%s is no member of %s any more", args[1], args[0]), nil
			})
		}),
	}
}

// completeMember completes a tenant's name, then one of a User.
func (c *connection) completeMember(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	kinds := []string{"tenants." + authv1.GroupVersion.Group, "users." + authv1.GroupVersion.Group}
	if len(args) >= len(kinds) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.names(kinds[len(args)], word), cobra.ShellCompDirectiveNoFileComp
}

// changeMembers changes who the members of a tenant are, as they are at that moment, and prints what change says of it.
func (c *connection) changeMembers(ctx context.Context, tenant string, change func([]authv1.Member) (after []authv1.Member, said string, err error)) error {
	var said string
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		t := &authv1.Tenant{}
		if err := read(ctx, c, tenantsResource, tenant, t); err != nil {
			return err
		}
		after, words, err := change(t.Spec.Members)
		if err != nil {
			return err
		}
		t.Spec.Members, said = after, words
		return update(ctx, c, tenantsResource, t)
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(c.streams.Out, said)
	return nil
}

// isMissing tells whether a tenant says within moments that a member is no User. Not everybody who says who the members are may look at Users.
func (c *connection) isMissing(ctx context.Context, tenant, member string) (missing bool) {
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 2*time.Second, true, func(ctx context.Context) (bool, error) {
		t := &authv1.Tenant{}
		if err := read(ctx, c, tenantsResource, tenant, t); err != nil {
			return false, err
		}
		observed := t.Status.ObservedGeneration >= t.Generation
		missing = observed && slices.ContainsFunc(t.Status.Members, func(m authv1.MemberStatus) bool { return m.User == member && m.State == authv1.MemberMissing })
		return observed, nil
	})
	return missing
}

// errNoSecret is for a password that is neither given nor to be made up.
var errNoSecret = errors.New("standard input is no terminal to ask for the password on: give it there with --password-stdin, or have one made up with --generate")
