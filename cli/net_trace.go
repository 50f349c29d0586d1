package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/mnicloud/mnicloud/network/inspect"
)

var traceProtocols = []string{"tcp", "udp", "icmp"}

func (n *netCommands) traceCommand() *cobra.Command {
	request := inspect.Request{SourcePort: inspect.DefaultSourcePort}
	var to string
	var output netOutput
	cmd := &cobra.Command{
		Use:   "trace --from NAMESPACE/POD --to ADDRESS[:PORT]",
		Short: "Say what would become of a packet, and why",
		Long: `Say what would become of a packet, and why, step by step: may the sender send it, does a Service lead
elsewhere, which Subnet and node have the destination, do the policies admit it, is it delivered or
dropped.

The programs that are attached are run themselves, with their own tables, on a packet that does not
exist (BPF_PROG_TEST_RUN). Nothing is sent and no table, counter or connection is changed. What a
node's own stack or the workload would do with the packet is not part of it.

The packet is the first of a connection (tcp), a datagram (udp) or an echo request (icmp). The exit code
is 0 whatever becomes of it; -o json has the verdict.`,
		Example: `  # Why does web not reach the database?
  mni net trace --from red/web --to 10.0.2.7:5432

  # From an address of a VPC; a ping; a full-size datagram
  mni net trace --from 10.0.1.5@red/main --to 10.0.2.7 --protocol icmp
  mni net trace --from red/web --to 10.0.2.7:53 --protocol udp --size 1500

  # From a node itself, to a Pod's infrastructure address
  mni net trace --from node/node-1 --to 198.18.0.12:8080`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: n.run(func(cmd *cobra.Command, _ []string) error {
			if request.From == "" || to == "" {
				return usagef("say who sends and where to: --from NAMESPACE/POD --to ADDRESS[:PORT]")
			}
			if err := parseDestination(&request, to); err != nil {
				return err
			}
			seen, err := n.look(cmd.Context())
			if err != nil {
				return err
			}
			t, err := seen.Trace(request)
			if err != nil {
				return err
			}
			return output.write(cmd.OutOrStdout(), t, func(w *tabwriter.Writer) { traceTable(w, t) })
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&request.From, "from", "", "who sends: NAMESPACE/POD, ADDRESS@VPC, node/NAME or outside/ADDRESS")
	flags.StringVar(&to, "to", "", "where to: ADDRESS or ADDRESS:PORT")
	oneOf(cmd, &request.Protocol, "protocol", "tcp with a port, icmp without one, unless said otherwise", traceProtocols...)
	flags.Uint16Var(&request.SourcePort, "source-port", request.SourcePort, "the sender's port, or the identifier of an echo request")
	flags.IntVar(&request.Size, "size", 0, "the packet's size in bytes, with the IP header")
	n.complete(cmd, "from", func(seen *inspect.Network) []string {
		words := seen.Objects.PodNames()
		for _, name := range seen.MemberNames() {
			words = append(words, "node/"+name)
		}
		return words
	})
	if err := cmd.RegisterFlagCompletionFunc("to", cobra.NoFileCompletions); err != nil {
		panic(err)
	}
	outputFlag(cmd, &output)
	return cmd
}

// maxPacket is the largest IPv4 packet, in bytes.
const maxPacket = 65535

// parseDestination reads --to into the request and completes the protocol.
func parseDestination(r *inspect.Request, to string) error {
	if at, err := netip.ParseAddrPort(to); err == nil {
		r.To, r.Port = at.Addr(), at.Port()
	} else if r.To, err = netip.ParseAddr(to); err != nil {
		return usagef("--to %q is not ADDRESS or ADDRESS:PORT, as in 10.0.1.5:80", to)
	}
	switch {
	case !r.To.Is4():
		return usagef("--to %s: IPv6 is not supported yet", r.To)
	case r.Protocol == "" && r.Port == 0:
		r.Protocol = "icmp"
	case r.Protocol == "":
		r.Protocol = "tcp"
	}
	switch {
	case r.Protocol == "icmp" && r.Port != 0:
		return usagef("--to %s: ICMP has no ports; leave :%d away", to, r.Port)
	case r.Protocol != "icmp" && r.Port == 0:
		return usagef("--to %s: %s takes a port, as in %s:80", to, r.Protocol, r.To)
	case r.Size < 0 || r.Size > maxPacket:
		return usagef("--size %d is not between 0 and %d bytes", r.Size, maxPacket)
	}
	return nil
}

func traceTable(w *tabwriter.Writer, t *inspect.Trace) {
	node, width := "", 0
	for _, s := range t.Steps {
		width = max(width, len(s.Step))
	}
	for _, s := range t.Steps {
		if at := s.Node + ", " + s.Program; at != node {
			node = at
			fmt.Fprintf(w, "%s\n", at)
		}
		fmt.Fprintf(w, "  %-*s   %s\n", width, s.Step, s.Text)
	}
	fmt.Fprintf(w, "\n%s > %s, %s: %s", t.From, t.To, t.Protocol, strings.ToUpper(t.Verdict))
	if t.Reason != "" {
		fmt.Fprintf(w, " (%s)", t.Reason)
	}
	fmt.Fprintln(w)
	if t.Remedy != "" {
		fmt.Fprintf(w, "What to do: %s.\n", t.Remedy)
	}
}

// oneOf adds a flag that takes one of a few words.
func oneOf(cmd *cobra.Command, value *string, name, usage string, words ...string) {
	cmd.Flags().Var(&choice{value, words}, name, usage+": "+strings.Join(words, ", "))
	completeWords(cmd, name, words...)
}

// choice is a flag's value that is one of a few words.
type choice struct {
	value *string
	words []string
}

// String implements pflag.Value.
func (c *choice) String() string {
	if c.value == nil {
		return ""
	}
	return *c.value
}

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("it is one of %s", strings.Join(c.words, ", "))
	}
	*c.value = s
	return nil
}

// Type implements pflag.Value.
func (c *choice) Type() string { return "word" }
