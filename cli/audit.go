package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/liggitt/tabwriter"
	"github.com/spf13/cobra"

	"github.com/mnicloud/mnicloud/cli/account"
)

// auditVerbs are the verbs of the audit trail.
var auditVerbs = []string{"create", "update", "patch", "apply", "delete", "deletecollection", "exec", "attach", "portforward", "log"}

// auditOptions are the flags of `mni audit`.
type auditOptions struct {
	account.AuditQuery
	since, until, output string
	limit                int
	follow               bool
}

func newAuditCommand(c *connection) *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Say who did what in a tenant (its owners)",
		Long: `Say who did what in a tenant: who made, changed and deleted resources or tried to, went into workloads and
read their logs; who changed the tenant itself. It is for the tenant's owners and the cloud's administrators.

The newest comes first. What was done appears within a second, and stays for 90 days unless the cloud's owner chose
another time. Requests that only look, and dry runs, leave no trace.`,
		Example: `  # Today; what ada deleted; who changed the tenant's members
  mni audit --since 24h
  mni audit --user ada --verb delete
  mni audit --resource tenants

  # With the address and the session or API token that each came by; what goes on now
  mni audit -o wide
  mni audit -f`,
		Args:              noArguments("%q: this command takes no arguments; --resource and --name say of what"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: c.run(func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(time.Now()); err != nil {
				return err
			}
			return c.audit(cmd.Context(), &o)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&o.since, "since", "", "only what is newer: 1h, 7d, or a time as 2006-01-02T15:04:05Z")
	flags.StringVar(&o.until, "until", "", "only what is older: 1h, 7d, or a time as 2006-01-02T15:04:05Z")
	flags.StringVar(&o.User, "user", "", "only what this user did")
	flags.StringVar(&o.Verb, "verb", "", "only what was asked for so, as delete or exec")
	flags.StringVar(&o.Resource, "resource", "", "only what was done to this kind, as vpcs")
	flags.StringVar(&o.Name, "name", "", "only what was done to resources of this name")
	flags.IntVar(&o.limit, "limit", 50, "how many entries at most; 0 is all")
	flags.BoolVarP(&o.follow, "follow", "f", false, "the oldest first, and go on with what is done from now on")
	flags.BoolVar(&o.Former, "former", false, "also of tenants of that name that are no more (administrators of the cloud)")
	flags.StringVarP(&o.output, "output", "o", "", "how to print: json, yaml, wide")
	completeWords(cmd, "verb", auditVerbs...)
	completeWords(cmd, "output", "json", "yaml", "wide")
	if err := cmd.RegisterFlagCompletionFunc("resource", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return c.kinds(word), cobra.ShellCompDirectiveNoFileComp
	}); err != nil {
		panic(err)
	}
	return cmd
}

// complete reads the flags.
func (o *auditOptions) complete(now time.Time) error {
	var err error
	if o.Since, err = parseMoment(o.since, now); err != nil {
		return usagef("--since %s: %w", o.since, err)
	}
	if o.Until, err = parseMoment(o.until, now); err != nil {
		return usagef("--until %s: %w", o.until, err)
	}
	switch {
	case o.limit < 0:
		return usagef("--limit %d: it must not be negative", o.limit)
	case o.output != "" && !slices.Contains([]string{"json", "yaml", "wide"}, o.output):
		return usagef("-o %s is not a format of this command: json, yaml or wide", o.output)
	case o.follow && (o.until != "" || o.output == "json" || o.output == "yaml"):
		return usagef("-f goes on for ever: leave out --until, and -o but wide")
	}
	return nil
}

// parseMoment is a time, or that of so long ago; nothing is the zero time.
func parseMoment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	ago, err := parseLife(text)
	if err != nil {
		return time.Time{}, errors.New("it must be a length of time, as 12h or 90d, or a time as 2006-01-02T15:04:05Z")
	}
	return now.Add(-ago), nil
}

func (c *connection) audit(ctx context.Context, o *auditOptions) error {
	source, err := c.openSession(ctx)
	if err != nil {
		return err
	}
	if o.Tenant = cmp.Or(c.tenant, c.namespace, source.Session().Tenant); o.Tenant == "" {
		if o.Tenant, err = c.session.chooseTenant(); err != nil {
			return err
		}
	}
	if o.Tenant == "" {
		return usagef("say of which tenant: -t TENANT, or `mni tenant use TENANT` for all commands")
	}
	client, err := source.Session().Client()
	if err != nil {
		return err
	}
	trail := &trail{o: o, every: pollEvery, table: tabwriter.NewWriter(c.streams.Out, 0, 0, 3, ' ', tabwriter.RememberWidths), ask: func(q *account.AuditQuery) ([]account.AuditEntry, string, error) {
		tokens, err := source.Tokens(ctx)
		if err != nil {
			return nil, "", err
		}
		entries, next, err := client.Audit(ctx, tokens.Access, q)
		return entries, next, c.refusedAudit(o.Tenant, err)
	}}
	if o.follow {
		return trail.follow(ctx)
	}
	entries, err := trail.read(o.AuditQuery, o.limit)
	switch {
	case err != nil:
		return err
	case o.output == "json" || o.output == "yaml":
		return c.printValue(entries, o.output)
	case len(entries) == 0:
		fmt.Fprintf(c.streams.ErrOut, "Nothing of the kind is in the audit trail of tenant %s.\n", printable(o.Tenant))
		return nil
	}
	return trail.tell(entries, true)
}

// refusedAudit says which tenants there are, when one is named that is not the user's.
func (c *connection) refusedAudit(tenant string, err error) error {
	refused := new(account.Refusal)
	if !errors.As(err, &refused) || refused.Code != http.StatusForbidden || !strings.Contains(refused.Why, "not a member of a tenant") {
		return err
	}
	id, asked := c.session.identity()
	if asked != nil {
		return err
	}
	return rewordedError{notAMember(tenant, id.Tenants), err}
}

// trail prints an audit trail.
type trail struct {
	o     *auditOptions
	table *tabwriter.Writer
	// every is how often it is asked for when it is followed.
	every time.Duration
	ask   func(*account.AuditQuery) (entries []account.AuditEntry, next string, err error)
}

// read reads at most so many entries, 0 being all, the newest first.
func (t *trail) read(q account.AuditQuery, limit int) ([]account.AuditEntry, error) {
	const mostAtOnce = 500
	all := []account.AuditEntry{}
	for {
		q.Limit = mostAtOnce
		if limit > 0 {
			q.Limit = min(limit-len(all), mostAtOnce)
		}
		entries, next, err := t.ask(&q)
		if err != nil {
			return nil, err
		}
		all = append(all, entries...)
		if q.Continue = next; next == "" || limit > 0 && len(all) >= limit {
			return all, nil
		}
	}
}

const (
	// pollEvery is how often a trail that is followed is asked for.
	pollEvery = 2 * time.Second
	// settles is after how long no older entry appears any more: refusals are gathered for ten seconds.
	settles = 15 * time.Second
)

// follow prints what there is, the oldest first, and then what comes.
func (t *trail) follow(ctx context.Context) error {
	shown := map[string]time.Time{}
	limit := t.o.limit
	q := t.o.AuditQuery
	for header := true; ; {
		entries, err := t.read(q, limit)
		if err != nil {
			return err
		}
		slices.Reverse(entries)
		entries = slices.DeleteFunc(entries, func(e account.AuditEntry) bool {
			text, err := json.Marshal(e)
			if err != nil {
				return false
			}
			_, known := shown[string(text)]
			shown[string(text)] = e.Time
			return known
		})
		if len(entries) > 0 {
			if err := t.tell(entries, header); err != nil {
				return err
			}
			header = false
			if newest := entries[len(entries)-1].Time.Add(-settles); newest.After(q.Since) {
				q.Since = newest
			}
		}
		for key, at := range shown {
			if at.Before(q.Since) {
				delete(shown, key)
			}
		}
		limit = 0
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(t.every):
		}
	}
}

func (t *trail) tell(entries []account.AuditEntry, header bool) error {
	table, wide := t.table, t.o.output == "wide"
	if header {
		fmt.Fprint(table, "TIME\tUSER\tVERB\tRESOURCE\tNAME\tRESULT")
		if wide {
			fmt.Fprint(table, "\tSOURCE\tBY")
		}
		fmt.Fprintln(table)
	}
	for i := range entries {
		e := &entries[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s", e.Time.Local().Format(time.DateTime), printable(e.User), printable(e.Verb), printable(e.Resource), printable(e.Name), resultOf(e))
		if wide {
			fmt.Fprintf(table, "\t%s\t%s", printable(e.Source), cameBy(e))
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// resultOf is the outcome in words.
func resultOf(e *account.AuditEntry) string {
	result := "ok"
	switch {
	case e.Code == 0:
		result = "unknown"
	case e.Code >= http.StatusBadRequest:
		result = fmt.Sprintf("%d %s", e.Code, printable(cmp.Or(e.Reason, http.StatusText(e.Code))))
	}
	if e.Count > 1 && e.Since != nil {
		result += fmt.Sprintf(" (%d times since %s)", e.Count, e.Since.Local().Format(time.TimeOnly))
	}
	return result
}

func cameBy(e *account.AuditEntry) string {
	if e.Token != "" {
		return "token " + printable(e.Token)
	}
	return "session " + printable(e.Session)
}
