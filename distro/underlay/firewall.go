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

func removeFirewall(inst instance.Instance) error {
	return nft(fmt.Sprintf("table inet %[1]s {}\ndelete table inet %[1]s\n", inst.Table()))
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

// HasTable says whether the instance's table is there.
func HasTable(inst instance.Instance) bool {
	return exec.Command("nft", "list", "table", "inet", inst.Table()).Run() == nil
}
