package attachment

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/test/isolate"
)

func TestOnlyTheNamespaceOfAnInterfaceThatSendsOnForwards(t *testing.T) {
	const redirects = "/proc/sys/net/ipv4/conf/eth0/send_redirects"
	for name, check := range map[string]bool{"checks addresses": true, "sends on": false} {
		t.Run(name, func(t *testing.T) {
			f, netns := newFixture(t), isolate.Netns(t)
			nic := tenantInterface("web", 5)
			nic.SourceDestCheck = check
			f.source["web"] = nic
			read := func(path string) string {
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				return strings.TrimSpace(string(data))
			}
			request := addRequest("c1", netns, "web")
			inside(t, netns, func() { require.NoError(t, os.WriteFile(forwarding, []byte("0"), 0)) }) // as in a container's new namespace
			_, err := f.Add(t.Context(), request)
			require.NoError(t, err)
			require.NoError(t, f.Check(t.Context(), request))
			if check {
				inside(t, netns, func() { require.Equal(t, "0", read(forwarding)) })
				return
			}
			inside(t, netns, func() {
				require.Equal(t, "1", read(forwarding))
				require.Equal(t, "0", read(redirects))
				require.Equal(t, "0", read("/proc/sys/net/ipv4/conf/all/send_redirects"))
				require.Equal(t, "0", read("/proc/sys/net/ipv4/conf/eth0/accept_redirects"))
				require.NoError(t, os.WriteFile(forwarding, []byte("0"), 0))
			})
			require.ErrorContains(t, f.Check(t.Context(), request), "net.ipv4.ip_forward is off")
			_, err = f.Add(t.Context(), request)
			require.NoError(t, err)
			require.NoError(t, f.Check(t.Context(), request), "a repeated ADD repairs it")
		})
	}
}
