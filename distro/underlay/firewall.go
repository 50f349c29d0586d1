package underlay

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// ruleset is the instance's own nftables table. No rule of anybody else's is looked at or changed.
func ruleset(inst instance.Instance) string {
	a := inst.Addresses()
	var ranges []string
	for _, r := range a.Ranges() {
		ranges = append(ranges, r.String())
	}
	own := inst.LinkPrefix() + "-*"
	return fmt.Sprintf(`table inet %[1]s {}
delete table inet %[1]s
table inet %[1]s {
	chain guard {
		comment "nobody outside speaks to the instance's addresses, or with them"
		type filter hook prerouting priority raw; policy accept;
		iifname { lo, "%[2]s" } accept
		ip daddr { %[3]s } drop
		ip saddr { %[3]s } drop
	}
	chain postrouting {
		comment "nodes reach the world"
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %[4]s ip daddr != { %[3]s } oifname != "%[2]s" masquerade
	}
}
`, inst.Table(), own, strings.Join(ranges, ", "), a.Underlay)
}

func ensureFirewall(inst instance.Instance) error { return nft(ruleset(inst)) }

// Tables are the nftables tables on the machine that are the instance's or its network daemon's, as FAMILY NAME.
func Tables(inst instance.Instance) ([]string, error) {
	out, err := exec.Command("nft", "list", "tables").Output()
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

func removeFirewall(inst instance.Instance) error {
	tables, err := Tables(inst)
	if err != nil {
		return err
	}
	var script strings.Builder
	for _, table := range tables {
		fmt.Fprintf(&script, "delete table %s\n", table)
	}
	return nft(script.String())
}

func nft(script string) error {
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
