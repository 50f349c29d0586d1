package daemon

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// https://github.com/cilium/cilium/issues/13015: an upgrade with changed maps cut traffic.
func TestADaemonThatIsUpgradedDowngradedAndKilledMeanwhileLosesNoPacket(t *testing.T) {
	for _, clsact := range []bool{false, true} {
		t.Run("clsact "+strconv.FormatBool(clsact), func(t *testing.T) {
			c := running(t)
			n := c.nodes[0]
			red := c.subnet("red", "10.1.0.0/24", 1001, 1001)
			web, peer := n.pod("web", red, "10.1.0.5", "198.18.0.5"), c.nodes[1].pod("client", red, "10.1.0.6", "198.18.0.6")
			n.stop(syscall.SIGTERM)
			n.options.ForceClsact = clsact
			n.start()
			n.awaitReady()
			peer.mustAdd()
			web.mustAdd()
			c.answer(web.inside, "web")
			c.echo(web.inside, port)
			c.eventually(peer.inside, "10.1.0.5", "web to 10.1.0.6: hello")
			c.eventually(machine, "198.18.0.5", "web to 169.254.66.1: hello")

			settle, fromMachine := c.traffic("from the other node", peer.inside, "10.1.0.5"), c.traffic("from the machine", machine, "198.18.0.5")
			random := rand.New(rand.NewPCG(1, 0))
			for _, other := range []bool{true, false} {
				for range 2 {
					n.stop(syscall.SIGKILL)
					n.other = other
					n.start()
					<-time.After(time.Duration(random.IntN(2000)) * time.Millisecond) // it is killed at any moment
				}
				n.awaitReady()
				layouts, err := os.ReadDir(filepath.Join(n.options.PinPath, "maps"))
				require.NoError(t, err)
				require.Len(t, layouts, 1, "the former maps are gone")
			}
			settle()
			fromMachine()
			require.NoError(t, web.check())
			require.NoError(t, web.del())
		})
	}
}
