package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/mnicloud/mnicloud/cli/account"
)

func newTokenCommand(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke API tokens, for programs",
		Long: `Make, list and revoke API tokens of the user who is logged in, or of a service account of a tenant. A program
uses one where there is nobody to log in: in a pipeline, in kubectl on another machine.

A token of yours may do what you may at that time, in all of your tenants, or less with --tenant and --role.
It does not end with the session or with the password, but by itself at its time, and when it is revoked.

A token of a service account ("mni serviceaccount") does not hang on a person: it may do what the account may at
that time. The tenant's admins and owners make, list and revoke them, with --service-account.`,
		Example: `  # A token for a pipeline that deploys to tenant red, shown this once
  mni token create deploy --tenant red --role member --expires 90d > token

  # A token of the service account ci of tenant red
  mni token create pipeline --tenant red --service-account ci > token

  # Use it: in mni, in kubectl, in any program
  mni login --server https://cloud.example.com:7443 --ca-file cloud.crt --token-stdin < token
  kubectl --server https://cloud.example.com:7443 --certificate-authority cloud.crt --token "$(cat token)" -n red get vpcs
  curl --cacert cloud.crt -H "Authorization: Bearer $(cat token)" https://cloud.example.com:7443/whoami`,
		Args: noArguments("%q: create, ls or rm"),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTokenCreateCommand(c), newTokenListCommand(c), newTokenRemoveCommand(c))
	return cmd
}

func newTokenCreateCommand(c *connection) *cobra.Command {
	var expires, role, of string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an API token and print it, this once",
		Long: `Make an API token and print it. The cloud keeps no copy of it: it cannot be shown again. NAME tells it from
others; it need not be unique.`,
		Example: `  mni token create deploy --tenant red --role member --expires 90d > token
  mni token create pipeline --tenant red --service-account ci > token`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("give the token one name, to tell it from others")
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			life, err := parseLife(expires)
			if err != nil {
				return usagef("--expires %s: %w", expires, err)
			}
			if of != "" && role != "" {
				return usagef("--role: a token of a service account may do what that may; give the service account another role, or make another one")
			}
			return c.createToken(cmd.Context(), args[0], life, account.Scope{Tenant: c.tenant, Role: role}, of)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&expires, "expires", "30d", "how long it is good for, at most a year: 12h, 90d")
	flags.StringVar(&role, "role", "", "may do no more than this role of a tenant may: owner, admin, member, viewer")
	c.addTenantFlag(cmd, "t")
	cmd.Flags().Lookup("tenant").Usage = "may work in this tenant only; with --service-account, the tenant that it is of"
	c.addAccountFlag(cmd, &of)
	completeWords(cmd, "role", "owner", "admin", "member", "viewer")
	return cmd
}

// parseLife reads a length of time, in which d means days of 24 hours.
func parseLife(text string) (time.Duration, error) {
	wrong := errors.New("it must be a length of time, as 12h or 90d")
	if days, ok := strings.CutSuffix(text, "d"); ok {
		hours, err := time.ParseDuration(days + "h")
		if err != nil || hours <= 0 || hours > 10000*time.Hour {
			return 0, wrong
		}
		return 24 * hours, nil
	}
	life, err := time.ParseDuration(text)
	if err != nil || life < time.Second {
		return 0, wrong
	}
	return life, nil
}

// gateway is a client of the gateway that the user is logged in at, with an access token.
func (c *connection) gateway(ctx context.Context) (*account.Client, string, error) {
	source, err := c.openSession(ctx)
	if err != nil {
		return nil, "", err
	}
	tokens, err := source.Tokens(ctx)
	if err != nil {
		return nil, "", err
	}
	client, err := source.Session().Client()
	return client, tokens.Access, err
}

func (c *connection) createToken(ctx context.Context, name string, life time.Duration, scope account.Scope, of string) error {
	whose, err := c.serviceAccount(ctx, of, false)
	if err != nil {
		return err
	}
	client, access, err := c.gateway(ctx)
	if err != nil {
		return err
	}
	var text string
	var token account.APIToken
	who := "you"
	if whose == nil {
		text, token, err = client.CreateAPIToken(ctx, access, name, life, scope)
	} else {
		who = "service account " + whose.Name
		text, token, err = client.CreateServiceAccountToken(ctx, access, name, life, *whose)
	}
	if err != nil {
		return err
	}
	fmt.Fprintln(c.streams.Out, text)
	fmt.Fprintf(c.streams.ErrOut, "Token %s is good until %s. It is not shown again; who has it is %s, so keep it secret.\n",
		token.ID, token.Expires.Local().Format(time.DateTime), who)
	return nil
}

// addAccountFlag adds the flag that names a service account of the tenant.
func (c *connection) addAccountFlag(cmd *cobra.Command, of *string) {
	cmd.Flags().StringVar(of, "service-account", "", "a token of this service account of the tenant, instead of yours")
	err := cmd.RegisterFlagCompletionFunc("service-account", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return c.names(accountsResource.GroupResource().String(), word), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err)
	}
}

// serviceAccount is the one of that name, or all, of the tenant that is worked in; nil when neither is asked for.
func (c *connection) serviceAccount(ctx context.Context, name string, all bool) (*account.ServiceAccount, error) {
	if name == "" && !all {
		return nil, nil
	}
	tenant := cmp.Or(c.tenant, c.namespace)
	if tenant == "" {
		source, err := c.openSession(ctx)
		if err != nil {
			return nil, err
		}
		if tenant = source.Session().Tenant; tenant == "" {
			if tenant, err = c.session.chooseTenant(); err != nil {
				return nil, err
			}
		}
	}
	if tenant == "" {
		return nil, usagef("say which tenant's service account is meant: --tenant TENANT")
	}
	return &account.ServiceAccount{Tenant: tenant, Name: name}, nil
}

func newTokenListCommand(c *connection) *cobra.Command {
	var output, of string
	var all bool
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List your API tokens, or those of service accounts",
		Example: `  mni token ls
  mni token ls --tenant red --service-account ci
  mni token ls --tenant red --service-accounts`,
		Args:              noArguments("%q: this command takes no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, _ []string) error {
			whose, err := c.serviceAccount(cmd.Context(), of, all)
			if err != nil {
				return err
			}
			if whose == nil && c.tenant != "" {
				return usagef("--tenant says whose service accounts are meant: give --service-account or --service-accounts too")
			}
			client, access, err := c.gateway(cmd.Context())
			if err != nil {
				return err
			}
			tokens, err := client.APITokens(cmd.Context(), access, whose)
			if err != nil {
				return err
			}
			return c.printTokens(tokens, whose, output)
		}),
	}
	cmd.Flags().BoolVar(&all, "service-accounts", false, "the tokens of all service accounts of the tenant")
	c.addTenantFlag(cmd, "t")
	c.addAccountFlag(cmd, &of)
	cmd.Flags().Lookup("service-account").Usage = "the tokens of this service account of the tenant"
	cmd.Flags().StringVarP(&output, "output", "o", "", "how to print: json, yaml")
	completeWords(cmd, "output", "json", "yaml")
	return cmd
}

func (c *connection) printTokens(tokens []account.APIToken, of *account.ServiceAccount, output string) error {
	if output != "" {
		return c.printValue(tokens, output)
	}
	if len(tokens) == 0 {
		who := "You have"
		switch {
		case of != nil && of.Name == "":
			who = "The service accounts of " + of.Tenant + " have"
		case of != nil:
			who = "Service account " + of.Name + " has"
		}
		fmt.Fprintln(c.streams.ErrOut, who+" no API token.")
		return nil
	}
	table := tabwriter.NewWriter(c.streams.Out, 0, 0, 3, ' ', 0)
	if of != nil {
		fmt.Fprintln(table, "ID\tNAME\tSERVICE ACCOUNT\tMADE BY\tENDS IN")
		for _, t := range tokens {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", t.ID, printable(t.Name), t.ServiceAccount, t.CreatedBy, duration.HumanDuration(time.Until(t.Expires)))
		}
		return table.Flush()
	}
	fmt.Fprintln(table, "ID\tNAME\tTENANT\tROLE\tENDS IN")
	for _, t := range tokens {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", t.ID, printable(t.Name), orAll(t.Tenant), orAll(t.Role), duration.HumanDuration(time.Until(t.Expires)))
	}
	return table.Flush()
}

func orAll(text string) string {
	if text == "" {
		return "(all)"
	}
	return text
}

// printable is a name that was typed by anybody, without what could move a terminal's cursor.
func printable(name string) string {
	quoted := fmt.Sprintf("%q", name)
	if quoted == `"`+name+`"` {
		return name
	}
	return quoted
}

func newTokenRemoveCommand(c *connection) *cobra.Command {
	var of string
	cmd := &cobra.Command{
		Use:     "rm ID...",
		Aliases: []string{"revoke"},
		Short:   "Revoke API tokens",
		Long:    `Revoke API tokens: from then on they are good for nothing, and what watches with them ends within seconds.`,
		Example: `  mni token rm 0123456789abcdef0123456789abcdef
  mni token rm 0123456789abcdef0123456789abcdef --tenant red --service-account ci`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("say which token: its ID, which `mni token ls` tells")
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			return c.tokenIDs(cmd.Context(), of, args, word), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: c.run(func(cmd *cobra.Command, args []string) error {
			whose, err := c.serviceAccount(cmd.Context(), of, false)
			if err != nil {
				return err
			}
			client, access, err := c.gateway(cmd.Context())
			if err != nil {
				return err
			}
			var failed []error
			for _, id := range args {
				if err := client.RevokeAPIToken(cmd.Context(), access, id, whose); err != nil {
					failed = append(failed, fmt.Errorf("token %s: %w", printable(id), err))
					continue
				}
				fmt.Fprintf(c.streams.Out, "token/%s revoked\n", id)
			}
			return errors.Join(failed...)
		}),
	}
	c.addTenantFlag(cmd, "t")
	c.addAccountFlag(cmd, &of)
	return cmd
}

// tokenIDs completes IDs of tokens that are not on the command line yet.
func (c *connection) tokenIDs(ctx context.Context, of string, given []string, word string) []string {
	whose, err := c.serviceAccount(ctx, of, false)
	if err != nil {
		return nil
	}
	client, access, err := c.gateway(ctx)
	if err != nil {
		return nil
	}
	tokens, err := client.APITokens(ctx, access, whose)
	if err != nil {
		return nil
	}
	var ids []string
	for _, t := range tokens {
		if strings.HasPrefix(t.ID, word) && !slices.Contains(given, t.ID) {
			ids = append(ids, t.ID+"\t"+printable(t.Name))
		}
	}
	return ids
}
