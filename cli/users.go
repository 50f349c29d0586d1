package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

func newUserCommand(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Make users, reset their passwords, lock them out (administrators of the cloud)",
		Long: `Make users, reset their passwords, lock them out, as an administrator of the cloud.

Users are resources as all others: "mni get users", "mni describe user ada", "mni delete user ada" are for the rest. Your
own password is changed with "mni password".`,
		Args: noArguments("%q: ls, create, reset-password, disable or enable"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listCommand(c, "users", "List the users that you may see"), newUserCreateCommand(c), newUserResetCommand(c),
		newUserDisableCommand(c, "disable", true), newUserDisableCommand(c, "enable", false))
	return cmd
}

// newPassword is how a password is given to a User.
type newPassword struct {
	*connection
	stdin, generate, keep bool
}

func (p *newPassword) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&p.stdin, "password-stdin", false, "read the password from standard input")
	flags.BoolVar(&p.generate, "generate", false, "make a password up, and print it this once")
	flags.BoolVar(&p.keep, "keep", false, "the User need not change the password at the next login")
}

// get asks for the password, twice, or makes one up, or reads it.
func (p *newPassword) get(ctx context.Context, user string) (string, error) {
	fd, isTerminal := p.terminal()
	switch {
	case p.stdin && p.generate:
		return "", usagef("--password-stdin and --generate: give one of them")
	case p.generate:
		return rand.Text(), nil
	case p.stdin:
		secrets, err := p.readSecrets(1)
		if err != nil {
			return "", err
		}
		return secrets[0], nil
	case !isTerminal:
		return "", &usageError{errNoSecret}
	}
	chosen, err := p.askSecret(ctx, fd, fmt.Sprintf("Password for %s: ", user))
	if err != nil {
		return "", err
	}
	again, err := p.askSecret(ctx, fd, "The same again: ")
	if err == nil && again != chosen {
		err = errors.New("the two passwords are not the same; nothing was changed")
	}
	return chosen, err
}

// say prints what became of the User, and a password that was made up, which stands alone on standard output.
func (p *newPassword) say(what, password string) {
	if !p.generate {
		fmt.Fprintln(p.streams.Out, what)
		return
	}
	fmt.Fprintf(p.streams.ErrOut, "%s; the password is shown this once:\n", what)
	fmt.Fprintln(p.streams.Out, password)
}

func newUserCreateCommand(c *connection) *cobra.Command {
	p := &newPassword{connection: c}
	var displayName string
	var administrator bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a User",
		Long: `Make a User. The password is asked for on the terminal, read with --password-stdin, or made up with --generate;
the User changes it at the first login, unless --keep is given. A password is 8 to 72 bytes long.`,
		Example: `  mni user create ada --display-name "Ada L." --generate
  mni tenant add red ada --role owner`,
		Args:              named(1, "give the User one name"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			password, err := p.get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			user := &authv1.User{ObjectMeta: metav1.ObjectMeta{Name: args[0]}, Spec: authv1.UserSpec{
				DisplayName: displayName, Administrator: administrator, Password: password, MustChangePassword: !p.keep,
			}}
			if err := create(cmd.Context(), c, usersResource, user); err != nil {
				return err
			}
			p.say(fmt.Sprintf("user/%s created", user.Name), password)
			return nil
		}),
	}
	p.addFlags(cmd)
	cmd.Flags().StringVar(&displayName, "display-name", "", "the User's name for people")
	cmd.Flags().BoolVar(&administrator, "administrator", false, "with every right in the cloud")
	return cmd
}

func newUserResetCommand(c *connection) *cobra.Command {
	p := &newPassword{connection: c}
	cmd := &cobra.Command{
		Use:   "reset-password NAME",
		Short: "Give a User another password",
		Long: `Give a User another password, which ends its sessions, and opens a User who is locked out. The User changes it at the
next login, unless --keep is given.`,
		Example:           `  mni user reset-password ada --generate`,
		Args:              named(1, "give one User's name"),
		ValidArgsFunction: c.completeUser,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			password, err := p.get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			spec := map[string]any{"password": password, "mustChangePassword": !p.keep}
			if err := merge(cmd.Context(), c, usersResource, args[0], map[string]any{"spec": spec}); err != nil {
				return err
			}
			p.say(fmt.Sprintf("user/%s has another password", args[0]), password)
			return nil
		}),
	}
	p.addFlags(cmd)
	return cmd
}

func newUserDisableCommand(c *connection, name string, disabled bool) *cobra.Command {
	short, long := "Let a User log in again", "Let a User log in again who was disabled."
	if disabled {
		short, long = "Lock a User out", "Lock a User out: its sessions and API tokens end, and it cannot log in until it is enabled again."
	}
	return &cobra.Command{
		Use:               name + " NAME",
		Short:             short,
		Long:              long,
		Example:           "  mni user " + name + " ada",
		Args:              named(1, "give one User's name"),
		ValidArgsFunction: c.completeUser,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			if err := merge(cmd.Context(), c, usersResource, args[0], map[string]any{"spec": map[string]any{"disabled": disabled}}); err != nil {
				return err
			}
			fmt.Fprintf(c.streams.Out, "user/%s %sd\n", args[0], name)
			return nil
		}),
	}
}

// completeUser completes a User's name.
func (c *connection) completeUser(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.names("users."+authv1.GroupVersion.Group, word), cobra.ShellCompDirectiveNoFileComp
}
