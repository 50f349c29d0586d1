//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machine "github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/fault"
)

// moveWithin is how long a lost node's Containers may take until they run elsewhere.
const moveWithin = 60 * time.Second

// onNode2 makes a Container run on node-2 that may run anywhere.
func onNode2(t *testing.T, container *ctrv1.Container) {
	t.Helper()
	if out, err := kubectl(t.Context(), "cordon", nodes[0]); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	create(t, container)
	ready(t, container)
	if out, err := kubectl(t.Context(), "uncordon", nodes[0]); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if container.Status.Node != nodes[1] {
		t.Fatalf("%s runs on %s", container.Name, container.Status.Node)
	}
}

// runsOn waits until the Container is Ready on the node.
func runsOn(t *testing.T, container *ctrv1.Container, node string) {
	t.Helper()
	eventually(t, container.Name+" runs on "+node, func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(container), container); err != nil {
			return err
		}
		if container.Status.Phase != status.Ready || container.Status.Node != node {
			return fmt.Errorf("phase %s on %s: %v", container.Status.Phase, container.Status.Node, container.Status.Conditions)
		}
		return nil
	})
}

func nodeIsReady(t *testing.T, name string) {
	t.Helper()
	eventually(t, name+" is Ready", func(ctx context.Context) error {
		node := &corev1.Node{}
		if err := kube.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("%+v", node.Status.Conditions)
	})
}

func TestALostNodesContainersRunElsewhereAndItCannotSendAsTheyWhenItComesBack(t *testing.T) {
	namespace := tenant(t, "lost")
	vpcWithSubnets(t, namespace)
	server, sh := whoami(namespace, "lost-web", "a", ""), shell(namespace, "lost-shell", "a", nodes[0])
	stays := whoami(namespace, "lost-stays", "b", nodes[0])
	create(t, sh, stays)
	onNode2(t, server)
	ready(t, sh, stays)
	echo(t, stays)
	address, mac := server.Status.Address, macOf(t, server)
	eventually(t, "it answers", func(ctx context.Context) error { return checkIdentity(ctx, sh, server) })

	gateway := gatewayMAC(t, sh) // the Subnet's
	old, peer := openPacketSocket(t, server), openPacketSocket(t, sh)
	say := func(what string) {
		frame := udp(t, old.nic.HardwareAddr, gateway, address, sh.Status.Address, 9, []byte(what))
		_ = unix.Sendto(old.fd, frame, 0, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: old.nic.Index, Halen: 6})
	}
	eventually(t, "the peer hears what is honest", func(context.Context) error {
		say("honest")
		if !peer.receives(t, "honest", silence) {
			return fmt.Errorf("nothing arrived")
		}
		return nil
	})

	lost := thisInstance(t).Nodes(2)[1]
	count := flood(t, sh, stays)
	cut := time.Now()
	plug(t, lost, false)
	t.Cleanup(func() { plug(t, lost, true) })
	runsOn(t, server, nodes[0])
	took := time.Since(cut)
	t.Logf("runs elsewhere %.1f s after the node was cut off", took.Seconds())
	if took > moveWithin {
		t.Errorf("it took %s, more than %s", took, moveWithin)
	}
	if out, err := mni(t.Context(), "status"); err == nil || !regexp.MustCompile("not ready: .*node "+nodes[1]).MatchString(out) || !strings.Contains(out, "1 of 2 nodes ready") {
		t.Errorf("mni status says nothing of the lost node: %v\n%s", err, out)
	}
	if server.Status.Address != address || macOf(t, server) != mac {
		t.Errorf("it was %s %s and is %s %s", address, mac, server.Status.Address, macOf(t, server))
	}
	eventually(t, "it answers at its address", func(ctx context.Context) error { return checkIdentity(ctx, sh, server) })

	select { // cut off for a minute, however soon they ran elsewhere
	case <-t.Context().Done():
	case <-time.After(time.Until(cut.Add(moveWithin))):
	}
	refused := dropsWhere(t, nodes[0], "reason", "stale_source")
	stop := make(chan struct{})
	go func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				say("from the grave")
			}
		}
	}()
	plug(t, lost, true)
	back := time.Now()
	heard := peer.receives(t, "from the grave", 15*time.Second)
	close(stop)
	if heard {
		t.Error("the peer heard the old holder")
	}
	refused = dropsWhere(t, nodes[0], "reason", "stale_source") - refused
	t.Logf("%v packets of the old holder were refused by the peer's node", refused)
	if refused == 0 {
		t.Error("none was refused: nothing of the old holder arrived, so nothing is shown")
	}
	if sent, answered := count(); sent < int(900*moveWithin.Seconds()) || answered != sent {
		t.Errorf("%d of %d datagrams between Containers of the other node were not answered", sent-answered, sent)
	}
	nodeIsReady(t, nodes[1])
	t.Logf("the node is Ready %.1f s after it is back", time.Since(back).Seconds())
	eventually(t, "it answers still", func(ctx context.Context) error { return checkIdentity(ctx, sh, server) })
	isConsistent(t)
}

// plug plugs a node's cable in, or pulls it.
func plug(t *testing.T, n machine.Node, in bool) {
	t.Helper()
	if err := fault.Plug(n, in); err != nil {
		t.Fatal(err)
	}
}

// macOf is the MAC address of a Container's interface.
func macOf(t *testing.T, container *ctrv1.Container) string {
	t.Helper()
	out, err := kubectl(t.Context(), "get", "networkinterfaces.net.mnicloud.jp", string(container.UID), "-o", "jsonpath={.status.mac}")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := net.ParseMAC(out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestANodeThatIsRemovedLosesItsContainersAndComesBack(t *testing.T) {
	namespace := tenant(t, "removed")
	vpcWithSubnets(t, namespace)
	server, sh := whoami(namespace, "removed-web", "a", ""), shell(namespace, "removed-shell", "b", nodes[0])
	create(t, sh)
	onNode2(t, server)
	ready(t, sh)
	address := server.Status.Address
	start := time.Now()
	if out, err := kubectl(t.Context(), "delete", "node", nodes[1]); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	runsOn(t, server, nodes[0])
	t.Logf("runs elsewhere %.1f s after its node was removed", time.Since(start).Seconds())
	if server.Status.Address != address {
		t.Errorf("the address was %s and is %s", address, server.Status.Address)
	}
	eventually(t, "it answers", func(ctx context.Context) error { return checkIdentity(ctx, sh, server) })
	kill(t, "node-2/kubelet") // a kubelet registers its node when it starts
	nodeIsReady(t, nodes[1])
	isConsistent(t)
}
