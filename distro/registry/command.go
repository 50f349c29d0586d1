package registry

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// Command is `mni registry`: who may use the cloud's registry, and the server itself (hidden; the supervisor starts it).
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "registry",
		Short: "Say who may use the cloud's image registry",
		Long: `Say who may use the cloud's image registry, ` + Name + `.

The registry takes requests from whoever reaches it (the machine and its nodes, never tenants) until the first user
is added. From then on everybody else is refused; Pods pull with an image pull secret:

  kubectl create secret docker-registry NAME --docker-server=` + Name + ` --docker-username=... --docker-password=...

The cloud's own images (` + Name + `/` + SystemPrefix + `...) need no secret on the cloud's nodes.`,
	}
	var name string
	command.PersistentFlags().StringVar(&name, "instance", instance.FromEnvironment(), "name of the cloud on this machine (environment: "+instance.Variable+")")
	state := func() (State, error) {
		found, err := Find(name)
		return StateOf(found), err
	}
	user := &cobra.Command{Use: "user", Short: "Add, list and remove users"}
	user.AddCommand(addUserCommand(state), listUsersCommand(state), removeUserCommand(state))
	command.AddCommand(user, offCommand(state), serveCommand())
	return command
}

func addUserCommand(state func() (State, error)) *cobra.Command {
	var fromStdin bool
	command := &cobra.Command{
		Use:   "add NAME",
		Short: "Add a user, or give one a new password; the first user turns authentication on",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := state()
			if err != nil {
				return err
			}
			var password string
			switch {
			case fromStdin:
				password, err = readLine(cmd.InOrStdin())
			case isTerminal(cmd.InOrStdin()):
				password, err = askPassword(cmd.ErrOrStderr())
			}
			if err != nil {
				return err
			}
			made := password == ""
			if made {
				password = rand.Text()
			}
			if err := s.AddUser(args[0], password); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "user %s may use %s; authentication is on\n", args[0], Name)
			if made {
				fmt.Fprintln(cmd.OutOrStdout(), password)
			}
			return nil
		},
	}
	command.Flags().BoolVar(&fromStdin, "password-stdin", false,
		"read the password from standard input (otherwise it is asked for on a terminal; when none is given, one is made and printed)")
	return command
}

func listUsersCommand(state func() (State, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "ls",
		Short: "List the users",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := state()
			if err != nil {
				return err
			}
			names, on, err := s.Users()
			if err != nil {
				return err
			}
			if !on {
				fmt.Fprintf(cmd.ErrOrStderr(), "authentication is off; `%s registry user add NAME` turns it on\n", cmd.Root().CommandPath())
			}
			for _, name := range names {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return nil
		},
	}
}

func removeUserCommand(state func() (State, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Remove a user; authentication stays on",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := state()
			if err != nil {
				return err
			}
			if err := s.RemoveUser(args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "user %s is removed; authentication stays on, `%s registry open` turns it off\n", args[0], cmd.Root().CommandPath())
			return nil
		},
	}
}

func offCommand(state func() (State, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "open",
		Short: "Turn authentication off and remove all users",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := state()
			if err != nil {
				return err
			}
			if err := s.TurnOffAuthentication(); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "authentication is off: whoever reaches %s may use it\n", Name)
			return nil
		},
	}
}

func serveCommand() *cobra.Command {
	var cfg Config
	var state State
	command := &cobra.Command{
		Use:    "serve",
		Short:  "Serve the registry in the foreground",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Address == "" || state.Dir == "" || cfg.CertFile == "" || cfg.KeyFile == "" {
				return errors.New("--address, --data, --cert and --key are required")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			cfg.DataDir, cfg.HTPasswdFile = state.DataDir(), state.HTPasswdFile()
			cfg.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			return Serve(ctx, cfg)
		},
	}
	flags := command.Flags()
	flags.StringVar(&cfg.Address, "address", "", "host:port to listen on")
	flags.StringVar(&state.Dir, "data", "", "directory of images (below data/) and users (htpasswd; authentication is on while it exists)")
	flags.StringVar(&cfg.CertFile, "cert", "", "TLS certificate, PEM")
	flags.StringVar(&cfg.KeyFile, "key", "", "TLS key, PEM")
	return command
}

func readLine(from io.Reader) (string, error) {
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimRight(line, "\r\n"), nil
}

func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func askPassword(prompt io.Writer) (string, error) {
	fmt.Fprint(prompt, "Password (empty: make one): ")
	password, err := term.ReadPassword(int(os.Stdin.Fd()))
	fmt.Fprintln(prompt)
	return string(password), err
}
