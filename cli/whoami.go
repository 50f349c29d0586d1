package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/cli/account"
)

func newLogoutCommand(c *connection) *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "End the session that `mni login` began",
		Long: `End the session that "mni login" began, in the cloud and here. Kubeconfigs that "mni kubeconfig" wrote for
it are of no use from then on.`,
		Args:              noArguments("%q: this command takes no arguments; --profile says which login"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              c.run(func(cmd *cobra.Command, _ []string) error { return c.logout(cmd.Context()) }),
	}
}

func (c *connection) logout(ctx context.Context) error {
	store, err := account.UserStore()
	if err != nil {
		return err
	}
	source, err := c.openSession(ctx)
	if err != nil {
		return err
	}
	ended := endSession(ctx, source)
	if err := store.Remove(c.session.profile); err != nil {
		return err
	}
	session := source.Session()
	if ended != nil {
		return rewordedError{message: fmt.Sprintf("the login is forgotten here, but %s could not be told, where the session ends by itself at %s: %v",
			session.Server, session.SessionEnds.Local().Format(time.DateTime), c.explain(ended))}
	}
	fmt.Fprintf(c.streams.Out, "Logged out of %s.\n", session.Server)
	return nil
}

// endSession ends a session at the gateway. One that has ended is a success.
func endSession(ctx context.Context, source *account.Source) error {
	if source.Session().ByToken() {
		return nil // it is not ended by who uses it, but revoked by whose it is
	}
	tokens, err := source.Tokens(ctx)
	if err == nil {
		var client *account.Client
		if client, err = source.Session().Client(); err == nil {
			err = client.Logout(ctx, tokens.Access)
		}
	}
	if refused := new(account.Refusal); errors.Is(err, account.ErrEnded) || errors.As(err, &refused) && refused.Code == http.StatusUnauthorized {
		return nil
	}
	return err
}

// myself is what `mni whoami` tells.
type myself struct {
	Server string `json:"server"`
	account.Identity
	// Tenant is worked in unless another is named.
	Tenant      string    `json:"tenant,omitempty"`
	SessionEnds time.Time `json:"sessionEnds"`
}

func newWhoAmICommand(c *connection) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:               "whoami",
		Short:             "Say who you are logged in as, and in which tenants",
		Long:              `Say who you are logged in as, where, and which tenants you are a member of, with the role in each.`,
		Args:              noArguments("%q: this command takes no arguments"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" && output != "yaml" {
				return usagef("-o %s is not a format of this command: json or yaml", output)
			}
			me, err := c.whoAmI(cmd.Context())
			if err != nil {
				return err
			}
			return c.printMyself(me, output)
		}),
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "how to print: json, yaml")
	completeWords(cmd, "output", "json", "yaml")
	return cmd
}

func (c *connection) whoAmI(ctx context.Context) (myself, error) {
	source, err := c.openSession(ctx)
	if err != nil {
		return myself{}, err
	}
	id, err := whoAmI(ctx, source)
	if err != nil {
		return myself{}, err
	}
	kept := source.Session()
	me := myself{Server: kept.Server, Identity: id, Tenant: kept.Tenant, SessionEnds: kept.SessionEnds}
	if me.Tenant == "" && len(id.Tenants) == 1 {
		me.Tenant = id.Tenants[0].Name
	}
	return me, nil
}

// printValue prints what is no resource, as JSON or YAML.
func (c *connection) printValue(value any, output string) error {
	switch output {
	case "json":
		encoder := json.NewEncoder(c.streams.Out)
		encoder.SetIndent("", "    ")
		return encoder.Encode(value)
	case "yaml":
		text, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = c.streams.Out.Write(text)
		return err
	}
	return usagef("-o %s is not a format of this command: json or yaml", output)
}

func (c *connection) printMyself(me myself, output string) error {
	if output != "" {
		return c.printValue(me, output)
	}
	table := tabwriter.NewWriter(c.streams.Out, 0, 0, 3, ' ', 0)
	if me.ServiceAccount != "" {
		fmt.Fprintf(table, "Service account:\t%s\n", me.ServiceAccount)
	} else {
		fmt.Fprintf(table, "User:\t%s\n", me.User)
	}
	if me.Administrator {
		fmt.Fprintf(table, "Administrator:\tyes, of the cloud\n")
	}
	fmt.Fprintf(table, "Cloud:\t%s\nSession ends:\t%s\n", me.Server, me.SessionEnds.Local().Format(time.DateTime))
	if me.MustChangePassword {
		fmt.Fprintf(table, "Password:\tmust be changed before anything else: %s password\n", c.flags.CommandPath())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(me.Tenants) == 0 {
		return nil
	}
	fmt.Fprintln(c.streams.Out)
	fmt.Fprintln(table, "TENANT\tROLE\tUSED")
	for _, t := range me.Tenants {
		used := ""
		if t.Name == me.Tenant {
			used = "unless --tenant says another"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", t.Name, t.Role, used)
	}
	return table.Flush()
}
