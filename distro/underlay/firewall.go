package underlay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// ruleset is the instance's own nftables table. No rule of anybody else's is looked at or changed.
func ruleset(inst instance.Instance, outside instance.Outside) string {
	a := inst.Addresses()
	var ranges []string
	for _, r := range a.Ranges() {
		ranges = append(ranges, r.String())
	}
	own := inst.LinkPrefix() + "-*"
	// A router of the owner's speaks with the nodes at their own addresses: it must tell them from each other.
	accept, direct := "", ""
	if !outside.Edge() {
		accept = fmt.Sprintf("\t\tip saddr %[1]s ip daddr %[2]s tcp dport { 179 } accept\n\t\tip saddr %[1]s ip daddr %[2]s tcp sport { 179 } accept\n"+
			"\t\tip saddr %[1]s ip daddr %[2]s udp dport { 3784, 4784 } accept\n\t\tip saddr %[1]s ip daddr %[2]s icmp type { echo-request, echo-reply, destination-unreachable, time-exceeded } accept\n",
			outside.Peer.Address, a.Underlay)
		direct = fmt.Sprintf("\t\tip saddr %s ip daddr %s accept\n", a.Underlay, outside.Peer.Address)
	}
	return fmt.Sprintf(`table inet %[1]s {}
delete table inet %[1]s
table inet %[1]s {
	chain guard {
		comment "nobody outside speaks to the instance's addresses, or with them"
		type filter hook prerouting priority raw; policy accept;
		iifname { lo, "%[2]s" } accept
%[5]s		ip daddr { %[3]s } drop
		ip saddr { %[3]s } drop
	}
	chain postrouting {
		comment "nodes reach the world"
		type nat hook postrouting priority srcnat; policy accept;
%[6]s		ip saddr %[4]s ip daddr != { %[3]s } oifname != "%[2]s" masquerade
	}
}
`, inst.Table(), own, strings.Join(ranges, ", "), a.Underlay, accept, direct)
}

func ensureFirewall(ctx context.Context, inst instance.Instance, outside instance.Outside) error {
	return nft(ctx, ruleset(inst, outside))
}

// Tables are the nftables tables on the machine that are the instance's or its network daemon's, as FAMILY NAME.
func Tables(ctx context.Context, inst instance.Instance) ([]string, error) {
	out, err := exec.CommandContext(ctx, "nft", "list", "tables").Output()
	if err != nil {
		return nil, fmt.Errorf("list nftables tables: %w", err)
	}
	var ours []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line) // table FAMILY NAME
		if len(f) == 3 && (f[2] == inst.Table() || strings.HasPrefix(f[2], inst.LinkPrefix()+"-")) {
			ours = append(ours, f[1]+" "+f[2])
		}
	}
	return ours, nil
}

func removeFirewall(ctx context.Context, inst instance.Instance) error {
	tables, err := Tables(ctx, inst)
	if err != nil {
		return err
	}
	var script strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&script, "delete table %s\n", table)
	}
	return nft(ctx, script.String())
}

// chains is the part of `nft -j list chains` that Warnings reads.
type chains struct {
	Objects []struct {
		Chain struct{ Family, Table, Name, Hook, Policy string }
	} `json:"nftables"`
}

// Warnings say what other firewalls on the machine do to the nodes' packets.
func Warnings(ctx context.Context, inst instance.Instance) ([]string, error) {
	out, err := exec.CommandContext(ctx, "nft", "-j", "list", "chains").Output()
	if err != nil {
		return nil, fmt.Errorf("list nftables chains: %w", err)
	}
	return warnings(inst, out)
}

func warnings(inst instance.Instance, list []byte) ([]string, error) {
	var all chains
	if err := json.Unmarshal(list, &all); err != nil {
		return nil, fmt.Errorf("read nftables chains: %w", err)
	}
	var found []string
	for _, o := range all.Objects {
		c := o.Chain
		if c.Hook != "forward" || c.Policy != "drop" {
			continue
		}
		found = append(found, fmt.Sprintf("this machine's firewall drops forwarded packets (nftables chain %[1]s %[2]s %[3]s). If containers do not "+
			"reach the outside, let it accept those of the link %[4]s: `nft insert rule %[1]s %[2]s %[3]s iifname %[4]s accept` and "+
			"`nft insert rule %[1]s %[2]s %[3]s oifname %[4]s accept`", c.Family, c.Table, c.Name, inst.UplinkName()))
	}
	return found, nil
}

func nft(ctx context.Context, script string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
