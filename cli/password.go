package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mnicloud/mnicloud/cli/account"
)

func newPasswordCommand(c *connection) *cobra.Command {
	stdin := false
	cmd := &cobra.Command{
		Use:   "password",
		Short: "Change your password",
		Long: `Change the password of the user who is logged in. All its other sessions end.

A password is 8 to 72 bytes long. It is asked for on the terminal, or read from standard input with
--password-stdin: the present one and the new one, a line each.`,
		Args:              noArguments("%q: this command takes no arguments; passwords are not given on the command line"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              c.run(func(cmd *cobra.Command, _ []string) error { return c.changePassword(cmd.Context(), stdin) }),
	}
	cmd.Flags().BoolVar(&stdin, "password-stdin", false, "read the present and the new password from standard input, a line each")
	return cmd
}

// changePassword changes the password, which ends all sessions, and begins another.
func (c *connection) changePassword(ctx context.Context, stdin bool) error {
	profile, _ := c.profileName()
	store, err := account.UserStore()
	if err != nil {
		return err
	}
	source, err := newSource(profile)
	if err != nil {
		return err
	}
	session := source.Session()
	if session.ServiceAccount != "" {
		return fmt.Errorf("you are logged in as %s, which has no password", session.Who())
	}
	c.entering = true
	present, chosen, err := c.passwords(ctx, session, stdin)
	if err != nil {
		return err
	}
	client, err := session.Client()
	if err != nil {
		return err
	}
	if err := client.ChangePassword(ctx, session.User, present, chosen); err != nil {
		return err
	}
	if session.Tokens, err = client.Login(ctx, session.User, chosen); err != nil {
		return fmt.Errorf("the password is changed, but logging in with it failed: `mni login%s`: %w", profileFlag(profile), err)
	}
	if err := store.Write(profile, session); err != nil {
		return err
	}
	fmt.Fprintf(c.streams.Out, "The password of %s at %s is changed; you are logged in with the new one.\n", session.User, session.Server)
	return nil
}

// passwords are the present one and the new one.
func (c *connection) passwords(ctx context.Context, session account.Session, stdin bool) (present, chosen string, err error) {
	if stdin {
		secrets, err := c.readSecrets(2)
		if err != nil {
			return "", "", err
		}
		return secrets[0], secrets[1], nil
	}
	fd, ok := c.terminal()
	if !ok {
		return "", "", usagef("standard input is no terminal to ask for passwords on: give them there with --password-stdin")
	}
	if present, err = c.askSecret(ctx, fd, fmt.Sprintf("Present password of %s at %s: ", session.User, session.Server)); err != nil {
		return "", "", err
	}
	if chosen, err = c.askSecret(ctx, fd, "New password: "); err != nil {
		return "", "", err
	}
	again, err := c.askSecret(ctx, fd, "New password again: ")
	if err == nil && again != chosen {
		err = errors.New("the two new passwords are not the same; nothing was changed")
	}
	return present, chosen, err
}
