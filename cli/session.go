package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mnicloud/mnicloud/cli/account"
)

// session is how a user who is logged in reaches the cloud: through its gateway, as itself.
type session struct {
	profile string
	source  *account.Source
	// identity asks the gateway, once, whose session it is.
	identity func() (account.Identity, error)
}

func newSession(ctx context.Context, profile string, source *account.Source) *session {
	return &session{profile, source, sync.OnceValues(func() (account.Identity, error) { return whoAmI(ctx, source) })}
}

func (s *session) server() string { return s.source.Session().Server }

// addTenantFlag adds -t, which exec has for another flag, or only --tenant.
func (c *connection) addTenantFlag(cmd *cobra.Command, shorthand string) {
	cmd.Flags().StringVarP(&c.tenant, "tenant", shorthand, "", "tenant to work in, of those that you are a member of")
	err := cmd.RegisterFlagCompletionFunc("tenant", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return c.tenantNames(word), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err)
	}
}

// tenantNames are those of the tenants of who is logged in.
func (c *connection) tenantNames(prefix string) []string {
	if _, err := c.openSession(c.flags.Context()); err != nil {
		return nil
	}
	id, err := c.session.identity()
	if err != nil {
		return nil
	}
	var names []string
	for _, t := range id.Tenants {
		if strings.HasPrefix(t.Name, prefix) {
			names = append(names, t.Name)
		}
	}
	return names
}

// newSource gives the tokens of a profile.
func newSource(profile string) (*account.Source, error) {
	store, err := account.UserStore()
	if err != nil {
		return nil, err
	}
	source, err := account.NewSource(store, profile)
	if errors.Is(err, account.ErrNoLogin) {
		return nil, fmt.Errorf("%w%s: log in with `mni login%s`", err, ofProfile(profile), profileFlag(profile))
	}
	return source, err
}

// openSession is the login that the flag or the environment names.
func (c *connection) openSession(ctx context.Context) (*account.Source, error) {
	profile, _ := c.profileName()
	source, err := newSource(profile)
	if err != nil {
		return nil, err
	}
	c.session = newSession(ctx, profile, source)
	return source, nil
}

// ofProfile names a profile that is not the one meant anyway, profileFlag is how a command line names it.
func ofProfile(profile string) string {
	if profile == account.DefaultProfile {
		return ""
	}
	return " in profile " + profile
}

func profileFlag(profile string) string {
	if profile == account.DefaultProfile {
		return ""
	}
	return " --profile " + profile
}

// whoAmI asks the gateway whose session it is.
func whoAmI(ctx context.Context, source *account.Source) (account.Identity, error) {
	tokens, err := source.Tokens(ctx)
	if err != nil {
		return account.Identity{}, err
	}
	client, err := source.Session().Client()
	if err != nil {
		return account.Identity{}, err
	}
	return client.WhoAmI(ctx, tokens.Access)
}

func (c *connection) newLoader() (clientcmd.ClientConfig, error) {
	if c.tenant != "" && c.namespace != "" && c.tenant != c.namespace {
		return nil, usagef("--tenant %s and --namespace %s: who is logged in has a tenant's name for a namespace; give one of them", c.tenant, c.namespace)
	}
	chosen, err := c.choose()
	if err != nil {
		return nil, err
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: c.context}
	overrides.Context.Namespace = c.namespace
	if chosen.profile != "" {
		return c.sessionLoader(chosen.profile, overrides)
	}
	if c.tenant != "" && c.namespace != "" {
		return nil, usagef("--tenant %s and --namespace %s: give one of them", c.tenant, c.namespace)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = chosen.file
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	if c.tenant == "" {
		return loader, nil
	}
	if overrides.Context.Namespace, err = c.namespaceOf(loader, c.tenant); err != nil {
		return nil, err
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides), nil
}

// sessionLoader is the configuration for the gateway of a login. The tokens come in with the transport.
func (c *connection) sessionLoader(profile string, overrides *clientcmd.ConfigOverrides) (clientcmd.ClientConfig, error) {
	if c.context != "" {
		return nil, usagef("--context chooses among the contexts of a kubeconfig, and you are logged in with `mni login`: leave it out, or give --kubeconfig too")
	}
	source, err := newSource(profile)
	if err != nil {
		return nil, err
	}
	c.session = newSession(c.flags.Context(), profile, source)
	kept := source.Session()
	tenant := kept.Tenant
	if c.tenant != "" {
		overrides.Context.Namespace = c.tenant
	}
	if tenant == "" && overrides.Context.Namespace == "" {
		if tenant, err = c.session.chooseTenant(); err != nil {
			return nil, err
		}
	}
	const name = "mni"
	overrides.CurrentContext = name
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: kept.Server, CertificateAuthorityData: []byte(kept.Authority)}
	config.AuthInfos[name] = clientcmdapi.NewAuthInfo()
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: tenant}
	return clientcmd.NewDefaultClientConfig(*config, overrides), nil
}

// chooseTenant is the user's only tenant; empty when there are none or several.
func (s *session) chooseTenant() (string, error) {
	id, err := s.identity()
	if err != nil {
		return "", err
	}
	if id.MustChangePassword {
		return "", mustChangePassword(s.profile)
	}
	if len(id.Tenants) == 1 {
		return id.Tenants[0].Name, nil
	}
	return "", nil
}

// sessionEnded explains that who was logged in is so no more.
func (c *connection) sessionEnded(err error) (string, bool) {
	if c.session == nil {
		return "", false
	}
	var refused *account.Refusal
	if errors.Is(err, account.ErrEnded) || apierrors.IsUnauthorized(err) || errors.As(err, &refused) && refused.Code == http.StatusUnauthorized {
		return fmt.Sprintf("your session at %s has ended: log in again with `mni login%s`", c.session.server(), profileFlag(c.session.profile)), true
	}
	return "", false
}

func mustChangePassword(profile string) error {
	return fmt.Errorf("the password must be changed before anything else: `mni password%s`", profileFlag(profile))
}

// refusedTenant explains that a tenant is not the user's to work in: the one that a document names, or else the command line.
func (c *connection) refusedTenant(status metav1.Status, ofDocument string) (string, bool) {
	if c.session == nil || status.Reason != metav1.StatusReasonForbidden || !strings.Contains(status.Message, "not a member of a tenant") {
		return "", false
	}
	namespace, given, err := c.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", false
	}
	id, err := c.session.identity()
	if err != nil {
		return "", false
	}
	if id.MustChangePassword {
		return mustChangePassword(c.session.profile).Error(), true
	}
	switch unnamed := !given && c.session.source.Session().Tenant == ""; {
	case ofDocument != "" && (!unnamed || ofDocument != namespace):
		namespace = ofDocument
	case unnamed: // what is there then is the library's word for none
		namespace = ""
	}
	return notAMember(namespace, id.Tenants), true
}

// refusedDocument explains that the tenant that a document names is not the user's to work in; other errors stay.
func (c *connection) refusedDocument(d *document, err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if message, ok := c.refusedTenant(status.Status(), d.object.GetNamespace()); ok {
			return d.errorf("metadata.namespace", "%s: %s", display(d.object.GroupVersionKind().GroupKind(), d.object.GetName()), message)
		}
	}
	return err
}

// unreachableGateway explains that no gateway answered.
func unreachableGateway(server string, request *url.Error, err error) (string, bool) {
	var operation *net.OpError
	switch {
	case request.Timeout():
		return fmt.Sprintf("the cloud at %s did not answer in time", server), true
	case errors.As(err, &operation):
		return fmt.Sprintf("no cloud answers at %s (%v): is the address right, and does the cloud run?", server, operation.Err), true
	case strings.Contains(err.Error(), "x509:"):
		return fmt.Sprintf("what answers at %s is not the cloud that you logged in to (%v): log in again, with --ca-file if its authority has changed", server, request.Err), true
	}
	return "", false
}
