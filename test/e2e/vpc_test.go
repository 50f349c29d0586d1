//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// twoTenants are two tenants whose VPCs have the same CIDR, each with servers and a shell on both nodes and in both Subnets.
type twoTenants struct {
	servers map[string][]*ctrv1.Container // by tenant
	shells  map[string][]*ctrv1.Container
}

func setUpTwoTenants(t *testing.T, a, b string) twoTenants {
	t.Helper()
	out := twoTenants{servers: map[string][]*ctrv1.Container{}, shells: map[string][]*ctrv1.Container{}}
	var all []*ctrv1.Container
	for _, name := range []string{a, b} {
		namespace := tenant(t, name)
		vpcWithSubnets(t, namespace)
		for _, subnet := range []string{"a", "b"} {
			for i, node := range nodes {
				server := whoami(namespace, fmt.Sprintf("%s-web-%s%d", namespace, subnet, i+1), subnet, node)
				create(t, server)
				out.servers[name] = append(out.servers[name], server)
				all = append(all, server)
			}
		}
		for i, node := range nodes {
			sh := shell(namespace, fmt.Sprintf("%s-shell%d", namespace, i+1), "a", node)
			create(t, sh)
			out.shells[name] = append(out.shells[name], sh)
			all = append(all, sh)
		}
	}
	ready(t, all...)
	return out
}

// checkIdentity fails unless the server answers its own name to the shell.
func checkIdentity(ctx context.Context, from, server *ctrv1.Container) error {
	body, err := wget(ctx, from, "http://"+server.Status.Address+":8080/", 5)
	if err != nil {
		return fmt.Errorf("%s asks %s: %w: %s", from.Name, server.Name, err, body)
	}
	if !strings.Contains(body, server.Name) {
		return fmt.Errorf("%s asks %s at %s: another answered: %s", from.Name, server.Name, server.Status.Address, body)
	}
	return nil
}

func TestContainersOfAVPCReachEachOtherAndNobodyElse(t *testing.T) {
	t.Parallel()
	tenants := setUpTwoTenants(t, "iso-a", "iso-b")

	t.Run("each answer is from the right one, on the same and on the other node, in the same and in the other Subnet", func(t *testing.T) {
		for name, shells := range tenants.shells {
			for _, from := range shells {
				for _, server := range tenants.servers[name] {
					eventually(t, "the right one answers", func(ctx context.Context) error { return checkIdentity(ctx, from, server) })
				}
			}
		}
	})

	t.Run("between two VPCs of one CIDR nothing arrives", func(t *testing.T) {
		// Both VPCs have a Subnet "c", so that both route to it, and only b has servers there: first proved to receive.
		for _, name := range []string{"iso-a", "iso-b"} {
			create(t, &vpcv1.Subnet{ObjectMeta: objectMeta(name, "c"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.0.3.0/24"}})
		}
		for i, node := range nodes {
			server := whoami("iso-b", fmt.Sprintf("iso-b-web-c%d", i+1), "c", node)
			create(t, server)
			ready(t, server)
			eventually(t, "the receiver receives", func(ctx context.Context) error {
				return checkIdentity(ctx, tenants.shells["iso-b"][0], server)
			})
			for _, from := range tenants.shells["iso-a"] {
				if body, err := wget(t.Context(), from, "http://"+server.Status.Address+":8080/", 2); err == nil {
					t.Errorf("%s reached %s of another tenant: %s", from.Name, server.Name, body)
				}
			}
		}
	})

	t.Run("a tenant's Pod has an infrastructure address for Kubernetes and its own on its NIC", func(t *testing.T) {
		server := tenants.servers["iso-a"][0]
		out, err := kubectl(t.Context(), "get", "pod", server.Status.Pod, "-n", server.Namespace, "-o", "jsonpath={.status.podIP}")
		if err != nil || !strings.HasPrefix(out, "198.18.") {
			t.Errorf("podIP %q, %v; want an infrastructure address", out, err)
		}
		sh := tenants.shells["iso-a"][0]
		links, err := in(t.Context(), sh, "ip", "-4", "addr", "show", "dev", "eth0")
		if err != nil || !strings.Contains(links, "inet "+sh.Status.Address+"/") {
			t.Errorf("eth0 of %s: %v\n%s", sh.Name, err, links)
		}
	})
}

func TestAContainerKeepsItsAddressWhenItsPodIsLost(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "keep")
	vpcWithSubnets(t, namespace)
	server, sh := whoami(namespace, "keep-web", "a", ""), shell(namespace, "keep-shell", "a", "node-1")
	create(t, server, sh)
	ready(t, server, sh)
	address, pod := server.Status.Address, podUID(t, server)
	if out, err := kubectl(t.Context(), "delete", "pod", server.Status.Pod, "-n", namespace, "--wait=false"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eventually(t, "another Pod runs", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(server), server); err != nil {
			return err
		}
		uid, err := kubectl(ctx, "get", "pod", server.Status.Pod, "-n", namespace, "-o", "jsonpath={.metadata.uid}")
		if err != nil {
			return err
		}
		if uid == pod || server.Status.Phase != status.Ready {
			return fmt.Errorf("Pod %s, phase %s", uid, server.Status.Phase)
		}
		return nil
	})
	if server.Status.Address != address {
		t.Errorf("the address was %s and is %s", address, server.Status.Address)
	}
	eventually(t, "it answers at its address", func(ctx context.Context) error { return checkIdentity(ctx, sh, server) })
}

func podUID(t *testing.T, container *ctrv1.Container) string {
	t.Helper()
	uid, err := kubectl(t.Context(), "get", "pod", container.Status.Pod, "-n", container.Namespace, "-o", "jsonpath={.metadata.uid}")
	if err != nil {
		t.Fatal(err)
	}
	return uid
}

func TestASubnetWaitsForItsVpcAndAContainerForItsSubnet(t *testing.T) {
	t.Parallel()
	namespace := tenant(t, "waits")
	sh := shell(namespace, "early", "a", "")
	create(t, sh)
	eventually(t, "the Container says what it waits for", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(sh), sh); err != nil {
			return err
		}
		condition := meta.FindStatusCondition(sh.Status.Conditions, status.ConditionReady)
		if sh.Status.Phase != status.Pending || condition == nil || !strings.Contains(condition.Message, `"a"`) {
			return fmt.Errorf("phase %s, Ready %+v", sh.Status.Phase, condition)
		}
		return nil
	})
	vpcWithSubnets(t, namespace)
	ready(t, sh)
}
