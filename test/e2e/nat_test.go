//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	ctrv1 "github.com/mnicloud/mnicloud/services/ctr/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

func TestAContainerWithoutAnExternalAddressReachesTheOutsideByItsNATGateway(t *testing.T) {
	namespace := tenant(t, "leaving")
	vpcWithSubnets(t, namespace)
	url := startOutside(t)
	near, far, unserved := shell(namespace, "near", "a", nodes[0]), shell(namespace, "far", "a", nodes[1]), shell(namespace, "unserved", "b", nodes[0])
	eip := &vpcv1.ExternalIP{ObjectMeta: objectMeta(namespace, "shared")}
	gateway := &vpcv1.NATGateway{ObjectMeta: objectMeta(namespace, "out"), Spec: vpcv1.NATGatewaySpec{VPC: "main", Subnets: []string{"a"}, ExternalIPs: []string{"shared"}}}
	create(t, near, far, unserved, eip, gateway)
	ready(t, near, far, unserved)
	eventually(t, "the NATGateway is Ready", func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(gateway), gateway); err != nil {
			return err
		}
		if !conditions.IsReady(gateway.Status.Conditions, gateway.Generation) {
			return fmt.Errorf("%s", conditions.Message(gateway.Status.Conditions))
		}
		return nil
	})
	require.Len(t, gateway.Status.Addresses, 1)
	want := "you are " + gateway.Status.Addresses[0]
	for _, container := range []*ctrv1.Container{near, far} {
		eventually(t, container.Name+" reaches the outside", func(ctx context.Context) error {
			body, err := wget(ctx, container, url, 5)
			if err == nil && body != want {
				err = fmt.Errorf("the outside says %q, not %q", body, want)
			}
			return err
		})
		eventually(t, container.Name+" pings the outside", func(ctx context.Context) error {
			_, err := in(ctx, container, "ping", "-c", "1", "-W", "2", outsideServer)
			return err
		})
	}
	if body, err := wget(t.Context(), unserved, url, 2); err == nil {
		t.Errorf("a Container of a Subnet that the NATGateway does not serve gets out: %s", body)
	}
	isConsistent(t)
	goes(t, gateway, eip)
	if body, err := wget(t.Context(), near, url, 2); err == nil {
		t.Errorf("it gets out without the NATGateway: %s", body)
	}
	isConsistent(t)
}
