package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/network/inspect"
)

// runNet runs `mni net ...` on a machine with the given members, without an API server.
func runNet(t *testing.T, members Members, args ...string) output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot("v1.2", folders{state: t.TempDir()}, members, genericiooptions.IOStreams{Out: &stdout, ErrOut: &stderr})
	code := Execute(t.Context(), root, append([]string{"net"}, args...))
	return output{code: code, stdout: stdout.String(), stderr: stderr.String()}
}

func noMembers(string) ([]inspect.Member, error) { return nil, nil }

// deadMember is a node whose daemon has never run.
func deadMember(string) ([]inspect.Member, error) {
	return []inspect.Member{{Name: "node-1", PinPath: "/nonexistent/pins"}, {Name: "node-2", PinPath: "/nonexistent/pins"}}, nil
}

func TestNetSaysWhichCloudIsMissing(t *testing.T) {
	asked := ""
	missing := func(instance string) ([]inspect.Member, error) {
		asked = instance
		return nil, errors.New("there is no instance \"other\" on this machine: `mni up --instance other` starts one")
	}
	for _, command := range [][]string{{"status"}, {"drops"}, {"conntrack"}, {"routes"}, {"trace", "--from", "a/b", "--to", "10.0.0.1"}} {
		o := runNet(t, missing, append(command, "--instance", "other")...)
		require.Equal(t, ExitFailure, o.code)
		require.Equal(t, "error: there is no instance \"other\" on this machine: `mni up --instance other` starts one\n", o.stderr)
		require.Empty(t, o.stdout)
		require.Equal(t, "other", asked)
	}
}

func TestNetIsRootsOnly(t *testing.T) {
	n := &netCommands{members: noMembers, root: func() bool { return false }, connection: &connection{}}
	_, err := n.look(t.Context())
	require.ErrorContains(t, err, "takes root's rights: run it with sudo")
}

func TestWrongCommandLinesOfNetAreUsageErrors(t *testing.T) {
	trace := func(args ...string) []string { return append([]string{"trace", "--from", "a/b"}, args...) }
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"trace"}, "say who sends and where to: --from NAMESPACE/POD --to ADDRESS[:PORT]"},
		{trace("--to", "nonsense"), `--to "nonsense" is not ADDRESS or ADDRESS:PORT, as in 10.0.1.5:80`},
		{trace("--to", "[fd00::1]:80"), "--to fd00::1: IPv6 is not supported yet"},
		{trace("--to", "10.0.0.1:80", "--protocol", "icmp"), "ICMP has no ports; leave :80 away"},
		{trace("--to", "10.0.0.1", "--protocol", "udp"), "udp takes a port, as in 10.0.0.1:80"},
		{trace("--to", "10.0.0.1", "--size", "70000"), "--size 70000 is not between 0 and 65535 bytes"},
		{trace("--to", "10.0.0.1", "--protocol", "sctp"), "it is one of tcp, udp, icmp"},
		{[]string{"drops", "-o", "xml"}, "it is one of table, json, yaml"},
		{[]string{"conntrack", "--address", "web"}, `--address "web" is not an address such as 10.0.1.5`},
		{[]string{"conntrack", "--state", "open"}, "it is one of new, established, closing, cut"},
		{[]string{"routes", "a", "b"}, "accepts at most 1 arg"},
		{[]string{"status", "x"}, "unknown command \"x\""},
	} {
		o := runNet(t, noMembers, c.args...)
		require.Equal(t, ExitUsage, o.code, "%v: %s", c.args, o.stderr)
		require.Contains(t, o.stderr, c.want)
	}
}

func TestNetWorksWithoutAnAPIServerAndSaysWhatIsMissing(t *testing.T) {
	o := runNet(t, noMembers, "status", "-o", "json")
	require.Equal(t, ExitOK, o.code, o.stderr)
	require.Contains(t, o.stderr, "Warning: names are missing, as the API server does not tell them")
	var s netStatus
	require.NoError(t, json.Unmarshal([]byte(o.stdout), &s))
	require.Equal(t, "v1.2", s.Version)

	o = runNet(t, deadMember, "status", "-o", "yaml")
	require.Equal(t, ExitFailure, o.code)
	require.Contains(t, o.stderr, "node-1: no datapath is pinned at /nonexistent/pins: is its mni-netd running?")
	require.NoError(t, yaml.Unmarshal([]byte(o.stdout), &s))
	require.Len(t, s.Nodes, 2)

	for _, command := range []string{"drops", "conntrack", "routes"} {
		o = runNet(t, deadMember, command, "--node", "node-9")
		require.Equal(t, ExitFailure, o.code)
		require.Contains(t, o.stderr, `there is no node "node-9" on this machine; there are: node-1, node-2`)
	}
	o = runNet(t, noMembers, "drops", "--vpc", "red/main")
	require.Contains(t, o.stderr, `there is no VPC "red/main"; there are: none`)
}

func TestNetCompletesNodesAndWords(t *testing.T) {
	var out bytes.Buffer
	root := newRoot("v1.2", folders{state: t.TempDir()}, deadMember, genericiooptions.IOStreams{Out: &out, ErrOut: &out})
	for line, want := range map[string][]string{
		"net drops --node ":         {"node-1", "node-2"},
		"net routes --node node-2":  {"node-2"},
		"net trace --from node/":    {"node/node-1", "node/node-2"},
		"net trace --protocol ":     {"tcp", "udp", "icmp"},
		"net conntrack --state ":    inspect.States,
		"net status -o ":            netOutputs,
		"net conntrack --address x": {},
	} {
		out.Reset()
		require.Equal(t, ExitOK, Execute(t.Context(), root, append([]string{cobra.ShellCompNoDescRequestCmd}, strings.Split(line, " ")...)))
		words, _, _ := strings.Cut(out.String(), ":")
		require.ElementsMatch(t, want, strings.Fields(words), "%s: %s", line, out.String())
	}
}

// table is what a function prints.
func table(rows func(*tabwriter.Writer)) string {
	var out bytes.Buffer
	if err := asTable.write(&out, nil, rows); err != nil {
		panic(err)
	}
	return out.String()
}

func TestTablesOfNet(t *testing.T) {
	web := inspect.Owner{Node: "node-1", VPC: "red/main", Subnet: "red/a", Interface: "uid", Namespace: "red", Pod: "web", Address: "10.0.1.5"}
	require.Equal(t, "Nothing was dropped.\n", table(func(w *tabwriter.Writer) { dropsTable(w, nil) }))
	require.Equal(t, `NODE     VPC        INTERFACE   REASON     PACKETS   BYTES
node-1   red/main   red/web     no_route   3         180
node-1   -          vxlan       no_route   1         60

no_route: no route of the VPC leads to the destination.
  What to do: check the address.
`, table(func(w *tabwriter.Writer) {
		drop := inspect.Drop{Owner: web, Reason: "no_route", Meaning: "no route of the VPC leads to the destination", Remedy: "check the address", Packets: 3, Bytes: 180}
		other := drop
		other.Owner, other.Packets, other.Bytes = inspect.Owner{Node: "node-1", Interface: "vxlan"}, 1, 60
		dropsTable(w, []inspect.Drop{drop, other})
	}))
	require.Equal(t, `NODE     VPC        INTERFACE   KIND     PROTOCOL   SOURCE          DESTINATION   TRANSLATED   STATE   AGE
node-1   red/main   red/web     policy   tcp        10.0.1.7:4000   10.0.1.5:80   -            new     3s
`, table(func(w *tabwriter.Writer) {
		connectionsTable(w, []inspect.Connection{{
			Owner: web, Kind: "policy", Protocol: "tcp", Source: "10.0.1.7:4000", Destination: "10.0.1.5:80", State: "new", AgeSeconds: 3,
		}})
	}))
	require.Equal(t, `node-1, pod_egress
  packet   red/web sends it
node-2, vxlan_ingress
  drop     dropped: policy_ingress

red/web > 10.0.2.7:80, tcp: DROPPED (policy_ingress)
What to do: add a rule.
`, table(func(w *tabwriter.Writer) {
		traceTable(w, &inspect.Trace{
			From: "red/web", To: "10.0.2.7:80", Protocol: "tcp", Verdict: "dropped", Reason: "policy_ingress", Remedy: "add a rule",
			Steps: []inspect.TraceStep{
				{Node: "node-1", Program: "pod_egress", Step: "packet", Text: "red/web sends it"},
				{Node: "node-2", Program: "vxlan_ingress", Step: "drop", Text: "dropped: policy_ingress"},
			},
		})
	}))
	require.Contains(t, table(netStatus{Version: "v1", Status: inspect.Status{Nodes: []inspect.NodeStatus{{
		Node: "node-1", Attached: "tcx", Programs: "0123456789", Maps: []inspect.MapStatus{{Map: "nics", Entries: 90, Max: 100}, {Map: "flows", Max: 10}},
	}}}}.table), "The map nics of node-1 is full to 90% (90 of 100 entries).")
}
