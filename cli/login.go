package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mnicloud/mnicloud/cli/account"
)

// loggingIn is one run of `mni login`.
type loggingIn struct {
	*connection
	server, user, authorityFile string
	passwordStdin, tokenStdin   bool
}

func newLoginCommand(c *connection) *cobra.Command {
	l := &loggingIn{connection: c}
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Log in to a cloud",
		Long: `Log in to a cloud. From then on mni works in it as that user, with its tenants, until "mni logout" or
until the session ends, a week later.

Without --server it is the cloud that you were logged in to last, or one on this machine (as its owner).
The password is asked for on the terminal, or read from standard input with --password-stdin; it is
stored nowhere. Tokens are kept in a file that only you may read.`,
		Example: `  # A cloud on this machine, as its first administrator
  mni login --user admin

  # Somebody else's cloud; its owner gives you the address and the authority of its certificate
  mni login --server https://cloud.example.com:7443 --ca-file cloud.crt --user ada

  # In a script, working in tenant red unless -t says another
  mni login --user ada --tenant red --password-stdin < password-file

  # With an API token ("mni token create"), where nobody is there to log in
  mni login --server https://cloud.example.com:7443 --ca-file cloud.crt --token-stdin < token-file

  # A second login beside it
  mni login --profile work --server https://cloud.example.org:7443
  mni get --profile work`,
		Args:              noArguments("%q: this command takes no arguments; who you are is said with --user"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              c.run(func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context()) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&l.server, "server", "", "where the cloud's API is: https://HOST:PORT")
	flags.StringVarP(&l.user, "user", "u", "", "name of the User")
	flags.BoolVar(&l.passwordStdin, "password-stdin", false, "read the password from standard input")
	flags.BoolVar(&l.tokenStdin, "token-stdin", false, "read an API token from standard input, instead of a user's password")
	flags.StringVar(&l.authorityFile, "ca-file", "", "`file` with the certificate of who signed the cloud's, PEM; without it, those that this machine trusts")
	c.addTenantFlag(cmd, "t")
	if err := cmd.MarkFlagFilename("ca-file", "crt", "pem", "cer"); err != nil {
		panic(err)
	}
	return cmd
}

// run logs in and keeps the session. Nothing is kept of a login that fails.
func (l *loggingIn) run(ctx context.Context) error {
	if l.kubeconfig != "" || l.context != "" || l.namespace != "" {
		return usagef("--kubeconfig, --context and --namespace are not for this command: --server says which cloud, --tenant which tenant")
	}
	if l.tokenStdin && (l.passwordStdin || l.user != "") {
		return usagef("--token-stdin says who you are; leave out --user and --password-stdin")
	}
	l.entering = true
	store, err := account.UserStore()
	if err != nil {
		return err
	}
	profile, _ := l.profileName()
	before, err := store.Read(profile)
	if err != nil && !errors.Is(err, account.ErrNoLogin) {
		return err
	}
	session, err := l.where(before)
	if err != nil {
		return err
	}
	client, err := session.Client()
	if err != nil {
		return fmt.Errorf("--ca-file %s: %w", l.authorityFile, err)
	}
	if l.tokenStdin {
		return l.byToken(ctx, client, session, store, profile)
	}
	password, err := l.who(ctx, &session, before)
	if err != nil {
		return err
	}
	if session.Tokens, err = client.Login(ctx, session.User, password); err != nil {
		return loginError(session, err)
	}
	if session.MustChangePassword {
		if err := store.Write(profile, session); err != nil {
			return err
		}
		fmt.Fprintf(l.streams.Out, "Logged in to %s as %s%s.\n", session.Server, session.User, ofProfile(profile))
		return mustChangePassword(profile)
	}
	id, err := client.WhoAmI(ctx, session.Access)
	if err == nil {
		session.Tenant = l.tenant
		err = isTenant(id, l.tenant)
	}
	if err == nil {
		err = store.Write(profile, session)
	}
	if err != nil {
		return errors.Join(err, client.Logout(context.WithoutCancel(ctx), session.Access))
	}
	if !before.ByToken() && before.Server == session.Server {
		// The session that it replaces ends by itself if this does not reach the gateway, or its token is too old for it.
		_ = client.Logout(ctx, before.Access)
	}
	fmt.Fprintf(l.streams.Out, "Logged in to %s as %s%s.\n%s\n", session.Server, session.User, ofProfile(profile), tenantsLine(id, session.Tenant))
	return nil
}

// byToken keeps an API token as the login.
func (l *loggingIn) byToken(ctx context.Context, client *account.Client, session account.Session, store account.Store, profile string) error {
	token, err := l.readToken()
	if err != nil {
		return err
	}
	session.Tokens = account.Tokens{Access: token}
	id, err := client.WhoAmI(ctx, session.Access)
	if err != nil {
		return loginError(session, err)
	}
	if id.MustChangePassword {
		return fmt.Errorf("the password of User %s must be changed before its tokens are good for anything", id.User)
	}
	if err := isTenant(id, l.tenant); err != nil {
		return err
	}
	session.User, session.ServiceAccount, session.Tenant = id.User, id.ServiceAccount, l.tenant
	session.Expires, session.SessionEnds = id.Expires, id.Expires
	if err := store.Write(profile, session); err != nil {
		return err
	}
	fmt.Fprintf(l.streams.Out, "Logged in to %s as %s by a token%s.\n%s\n", session.Server, session.Who(), ofProfile(profile), tenantsLine(id, session.Tenant))
	return nil
}

// where finds the gateway: it is named, or it is that of an instance on this machine that is named, of the last login, or of the
// default instance.
func (l *loggingIn) where(before account.Session) (account.Session, error) {
	var session account.Session
	var err error
	local, localErr := l.localGateway()
	switch {
	case l.server != "":
		if session.Server, err = account.Server(l.server); err != nil {
			return session, usagef("--server: %w", err)
		}
		for _, known := range []account.Session{before, local} {
			if known.Server == session.Server {
				session.Authority = known.Authority
			}
		}
	case l.given("instance"):
		session, err = local, localErr
	case before.Server != "":
		session.Server, session.Authority = before.Server, before.Authority
	case localErr == nil:
		session = local
	case errors.Is(localErr, os.ErrNotExist):
		err = usagef("say where the cloud is: --server https://HOST:PORT; there is none on this machine")
	default:
		err = fmt.Errorf("say where the cloud is: --server https://HOST:PORT; of one on this machine: %w", localErr)
	}
	if err != nil || l.authorityFile == "" {
		return session, err
	}
	authority, err := os.ReadFile(l.authorityFile)
	if err != nil {
		return session, fmt.Errorf("--ca-file: %w", err)
	}
	session.Authority = string(authority)
	return session, nil
}

// localGateway is that of the instance on this machine that is meant.
func (l *loggingIn) localGateway() (account.Session, error) {
	var session account.Session
	file, err := l.instanceFile(gatewayKubeconfig)
	if err != nil {
		return session, err
	}
	if err := readable(file); err != nil {
		return session, err
	}
	instance, _ := l.instanceName()
	if err := l.machine.running(instance); err != nil {
		return session, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return session, err
	}
	session.Server, session.Authority = config.Host, string(config.CAData)
	return session, nil
}

// who asks for what is not given: the User and the password.
func (l *loggingIn) who(ctx context.Context, session *account.Session, before account.Session) (password string, err error) {
	fd, isTerminal := l.terminal()
	session.User = l.user
	usual := ""
	if before.Server == session.Server {
		usual = before.User
	}
	switch {
	case session.User != "":
	case l.passwordStdin || !isTerminal:
		if session.User = usual; usual == "" {
			return "", usagef("say who logs in: --user NAME")
		}
	default:
		question := "User: "
		if usual != "" {
			question = fmt.Sprintf("User [%s]: ", usual)
		}
		if session.User, err = l.ask(ctx, question); err != nil {
			return "", err
		}
		if session.User == "" {
			session.User = usual
		}
	}
	switch {
	case l.passwordStdin:
		secrets, err := l.readSecrets(1)
		if err != nil {
			return "", err
		}
		return secrets[0], nil
	case !isTerminal:
		return "", usagef("standard input is no terminal to ask for the password on: give it there with --password-stdin")
	}
	return l.askSecret(ctx, fd, fmt.Sprintf("Password of %s at %s: ", session.User, session.Server))
}

// loginError says why a login failed and what to do.
func loginError(session account.Session, err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	switch {
	case errors.As(err, &unknown):
		const ask = "give the certificate of the right one with --ca-file; the cloud's owner has it, `mni up` says where"
		if session.Authority == "" {
			return rewordedError{fmt.Sprintf("the certificate of %s is signed by an authority that this machine does not trust: %s", session.Server, ask), err}
		}
		return rewordedError{fmt.Sprintf("the certificate of %s is not signed by the authority that was expected: this may be another cloud. If it is the right one, %s", session.Server, ask), err}
	case errors.As(err, &name):
		return rewordedError{fmt.Sprintf("the certificate of %s is for another name (%v): use the name or address that the cloud's owner gave you", session.Server, name), err}
	}
	return err
}

// isTenant says whether a User may choose a tenant, "" being none.
func isTenant(id account.Identity, tenant string) error {
	if tenant == "" || id.Administrator || slices.ContainsFunc(id.Tenants, func(t account.Membership) bool { return t.Name == tenant }) {
		return nil
	}
	return fmt.Errorf("--tenant %s: %s", tenant, notAMember(tenant, id.Tenants))
}

// notAMember says which tenants there are to choose.
func notAMember(tenant string, tenants []account.Membership) string {
	message := "you are a member of no tenant: an owner or admin of one, or an administrator of the cloud, makes you one"
	if len(tenants) > 0 {
		message = "you are a member of " + strings.Join(tenantsOf(tenants), ", ") + ": choose one with --tenant"
	}
	if tenant != "" {
		message = fmt.Sprintf("there is no tenant %q that you are a member of; %s", tenant, message)
	}
	return message
}

func tenantsOf(tenants []account.Membership) []string {
	var names []string
	for _, t := range tenants {
		names = append(names, t.Name)
	}
	return names
}

// tenantsLine tells somebody who has just logged in what it can work in.
func tenantsLine(id account.Identity, chosen string) string {
	var roles []string
	for _, t := range id.Tenants {
		roles = append(roles, fmt.Sprintf("%s (%s)", t.Name, t.Role))
	}
	var line string
	switch {
	case len(roles) > 0:
		line = "Tenants: " + strings.Join(roles, ", ") + "."
	case id.Administrator:
		line = "You are an administrator of the cloud: --tenant chooses any tenant."
	default:
		return "You are a member of no tenant yet."
	}
	switch {
	case chosen != "":
		line += fmt.Sprintf(" Without --tenant you work in %s.", chosen)
	case len(roles) > 1:
		line += " Choose one with --tenant."
	}
	return line
}
