//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/kit/status"
	"github.com/mnicloud/mnicloud/network/inspect"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// publish makes an ExternalIP and a FloatingIP of a Container's name that lead to it, and waits until both are Ready.
func publish(t *testing.T, c *ctrv1.Container) *vpcv1.FloatingIP {
	t.Helper()
	fip := &vpcv1.FloatingIP{ObjectMeta: objectMeta(c.Namespace, c.Name), Spec: vpcv1.FloatingIPSpec{
		ExternalIP: c.Name, Target: vpcv1.FloatingIPTarget{Type: vpcv1.TargetContainers, Name: c.Name},
	}}
	create(t, &vpcv1.ExternalIP{ObjectMeta: objectMeta(c.Namespace, c.Name)}, fip)
	floatingReady(t, fip)
	return fip
}

func floatingReady(t *testing.T, fip *vpcv1.FloatingIP) {
	t.Helper()
	eventually(t, "FloatingIP "+fip.Name+" is Ready", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(fip), fip); err != nil {
			return err
		}
		if fip.Status.Phase != status.Ready || fip.Status.ObservedGeneration != fip.Generation {
			return fmt.Errorf("phase %s, conditions %v", fip.Status.Phase, fip.Status.Conditions)
		}
		return nil
	})
}

// curl asks an external address for its identity from the machine's own shell, through the edge router.
func curl(ctx context.Context, address string) (string, error) {
	c := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+":8080/", nil)
	if err != nil {
		return "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// answersOutside waits until a Container answers at an external address.
func answersOutside(t *testing.T, address, name string) {
	t.Helper()
	eventually(t, name+" answers at "+address, func(ctx context.Context) error {
		body, err := curl(ctx, address)
		if err == nil && !strings.Contains(body, name) {
			err = fmt.Errorf("another answers: %s", body)
		}
		return err
	})
}

// https://github.com/kubeovn/kube-ovn/issues/4690
func TestContainersArePublishedAtExternalAddresses(t *testing.T) {
	namespace := tenant(t, "published")
	vpcWithSubnets(t, namespace)
	c, err := cloud.Find(instance)
	require.NoError(t, err)
	members := c.Instance.Nodes(len(nodes))
	near, far, third := whoami(namespace, "near", "a", nodes[0]), whoami(namespace, "far", "b", nodes[1]), whoami(namespace, "third", "a", nodes[1])
	inside, alone := shell(namespace, "inside", "b", nodes[0]), shell(namespace, "alone", "b", nodes[1])
	create(t, near, far, third, inside, alone)
	ready(t, near, far, third, inside, alone)

	published := []*vpcv1.FloatingIP{publish(t, near), publish(t, far)}
	for i, server := range []*ctrv1.Container{near, far} {
		address := published[i].Status.ExternalAddress
		answersOutside(t, address, server.Name)
		eventually(t, "the node that has "+server.Name+" announces it by itself", func(context.Context) error {
			if hops := edgeHops(t, address+"/32"); !slices.Equal(hops, []string{members[i].Address().String()}) {
				return fmt.Errorf("next hops %v", hops)
			}
			return nil
		})
		answersOutside(t, address, server.Name)
		// An ICMP redirect would have told the machine of the node, and it would keep to that one when it dies.
		way, err := netlink.RouteGet(net.ParseIP(address))
		require.NoError(t, err)
		require.Equal(t, c.Instance.Addresses().Edge.String(), way[0].Gw.String(), "the machine goes by the edge router")
	}

	t.Run("by the aggregate", func(t *testing.T) {
		aggregateOnly(t)
		for i, server := range []*ctrv1.Container{near, far} {
			address := published[i].Status.ExternalAddress
			poolHops(t, address, members...)
			for range conversations { // each begins at another port, and so by either node
				body, err := curl(t.Context(), address)
				require.NoError(t, err)
				require.Contains(t, body, server.Name)
			}
			trace := netJSON[inspect.Trace](t, "trace", "--from", "outside/"+outsideServer, "--to", address+":8080")
			require.Equal(t, inspect.VerdictDelivered, trace.Verdict, steps(trace))
			require.Contains(t, steps(trace), nodes[i]+" external-address: an external address: "+server.Status.Address)
		}
	})

	// From inside: who has an external address reaches the others', and its own; who has none does not get out.
	publish(t, inside)
	for _, fip := range published {
		eventually(t, "it answers from inside", func(ctx context.Context) error {
			body, err := wget(ctx, inside, "http://"+fip.Status.ExternalAddress+":8080/", 5)
			if err == nil && !strings.Contains(body, fip.Name) {
				err = fmt.Errorf("another answers: %s", body)
			}
			return err
		})
		if body, err := wget(t.Context(), alone, "http://"+fip.Status.ExternalAddress+":8080/", 2); err == nil {
			t.Errorf("a Container without an external address gets out: %s", body)
		}
	}

	// Another target, on the other node.
	moved := published[0]
	change(t, moved, func() { moved.Spec.Target.Name = third.Name })
	floatingReady(t, moved)
	answersOutside(t, moved.Status.ExternalAddress, third.Name)
	require.Equal(t, third.Status.Address, moved.Status.Address)

	goes(t, moved)
	eventually(t, "nobody answers", func(ctx context.Context) error {
		if body, err := curl(ctx, moved.Status.ExternalAddress); err == nil {
			return fmt.Errorf("it answers: %s", body)
		}
		return nil
	})
	answersOutside(t, published[1].Status.ExternalAddress, far.Name)
	isConsistent(t)
}
