package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/mnicloud/mnicloud/cli/account"
)

func newKubeconfigCommand(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubeconfig [FILE]",
		Short: "Write a kubeconfig of your login, for kubectl and others",
		Long: `Write a kubeconfig of your login, for kubectl and whatever else takes one, to the file or standard output. It
has a context for each of your tenants, named after it; the namespace is the tenant's name.

There is no secret in it: kubectl runs mni for a token when it needs one, so it works as long as you are
logged in, on this machine.`,
		Example: `  mni kubeconfig ~/.kube/mni
  export KUBECONFIG=~/.kube/mni
  kubectl get vpcs

  # For one tenant
  mni kubeconfig --tenant red red.kubeconfig`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("give one file, or none for standard output")
			}
			return nil
		},
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			config, err := c.newKubeconfig(cmd.Context())
			if err != nil {
				return err
			}
			text, err := clientcmd.Write(*config)
			if err != nil {
				return err
			}
			if len(args) == 0 || args[0] == "-" {
				_, err = c.streams.Out.Write(text)
				return err
			}
			if err := os.WriteFile(args[0], text, 0o600); err != nil {
				return err
			}
			fmt.Fprintf(c.streams.Out, "export KUBECONFIG=%s\n", args[0])
			return nil
		}),
	}
	c.addTenantFlag(cmd, "t")
	return cmd
}

// newKubeconfig makes a kubeconfig of the login that gets its tokens from this program.
func (c *connection) newKubeconfig(ctx context.Context) (*clientcmdapi.Config, error) {
	me, err := c.whoAmI(ctx)
	if err != nil {
		return nil, err
	}
	contexts := tenantsOf(me.Tenants)
	if c.tenant != "" {
		if err := isTenant(me.Identity, c.tenant); err != nil {
			return nil, err
		}
		contexts, me.Tenant = []string{c.tenant}, c.tenant
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return nil, err
	}
	const name = "mni"
	kept := c.session.source.Session()
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: kept.Server, CertificateAuthorityData: []byte(kept.Authority)}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: clientauthv1.SchemeGroupVersion.String(), Command: self, Args: []string{credentialCommand, "--profile", c.session.profile},
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		InstallHint:     "mni is not where it was when this kubeconfig was written: write it again with `mni kubeconfig`",
	}}
	for _, tenant := range contexts {
		config.Contexts[tenant] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: tenant}
	}
	if len(contexts) == 0 {
		// For who is in no tenant there are still its own User and, for administrators, what is no tenant's.
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
		contexts = []string{name}
	}
	config.CurrentContext = contexts[0]
	if config.Contexts[me.Tenant] != nil {
		config.CurrentContext = me.Tenant
	}
	return config, nil
}

// credentialCommand is the name of the command that kubeconfigs call.
const credentialCommand = "credential"

// newCredentialCommand is what kubectl runs for a token: a credential plugin of client-go's.
func newCredentialCommand(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:    credentialCommand,
		Short:  "Print a token of your login as kubectl takes it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: c.run(func(cmd *cobra.Command, _ []string) error {
			source, err := c.openSession(cmd.Context())
			if err != nil {
				return err
			}
			tokens, err := source.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			return json.NewEncoder(c.streams.Out).Encode(credentialOf(tokens))
		}),
	}
}

func credentialOf(tokens account.Tokens) *clientauthv1.ExecCredential {
	return &clientauthv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status:   &clientauthv1.ExecCredentialStatus{Token: tokens.Access, ExpirationTimestamp: &metav1.Time{Time: tokens.Expires}},
	}
}
