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

func peering(namespace, name, peer string) *vpcv1.VpcPeering {
	return &vpcv1.VpcPeering{ObjectMeta: objectMeta(namespace, name), Spec: vpcv1.VpcPeeringSpec{
		VPC: "main", Peer: vpcv1.VpcPeer{Tenant: peer, VPC: "main"},
	}}
}

// peeringSays waits until a VpcPeering's phase and message are so.
func peeringSays(t *testing.T, p *vpcv1.VpcPeering, phase status.Phase, says string) {
	t.Helper()
	eventually(t, fmt.Sprintf("VpcPeering %s of %s is %s", p.Name, p.Namespace, phase), func(ctx context.Context) error {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(p.Status.Conditions, status.ConditionReady)
		if p.Status.Phase != phase || ready == nil || !strings.Contains(ready.Message, says) {
			return fmt.Errorf("phase %s, Ready %+v", p.Status.Phase, ready)
		}
		return nil
	})
}

func TestTwoTenantsReachEachOtherWhileBothAgreeToIt(t *testing.T) {
	t.Parallel()
	ours, theirs, strangers := tenant(t, "peer-ours"), tenant(t, "peer-theirs"), tenant(t, "peer-strangers")
	vpcWithSubnets(t, ours)
	for _, namespace := range []string{theirs, strangers} { // they use the same range
		create(t,
			&vpcv1.Vpc{ObjectMeta: objectMeta(namespace, "main"), Spec: vpcv1.VpcSpec{CIDR: "10.1.0.0/16"}},
			&vpcv1.Subnet{ObjectMeta: objectMeta(namespace, "a"), Spec: vpcv1.SubnetSpec{VPC: "main", CIDR: "10.1.1.0/24"}})
	}
	sh, server := shell(ours, "client", "a", nodes[0]), whoami(ours, "server", "b", nodes[1])
	near, far, closed := whoami(theirs, "near", "a", nodes[0]), whoami(theirs, "far", "a", nodes[1]), whoami(theirs, "closed", "a", nodes[1])
	back := shell(theirs, "client", "a", nodes[0])
	stranger := shell(strangers, "client", "a", nodes[0])
	create(t, &vpcv1.SecurityGroup{ObjectMeta: objectMeta(theirs, "shut"), Spec: vpcv1.SecurityGroupSpec{}})
	closed.Spec.SecurityGroups = []string{"shut"}
	all := []*ctrv1.Container{sh, server, near, far, closed, back, stranger}
	for _, c := range all {
		create(t, c)
	}
	ready(t, all...)
	silent := func(from, to *ctrv1.Container) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s/%s is out of reach of %s/%s", to.Namespace, to.Name, from.Namespace, from.Name), func(ctx context.Context) error {
			if body, err := wget(ctx, from, "http://"+to.Status.Address+":8080/", 2); err == nil {
				return fmt.Errorf("it answers: %s", body)
			}
			return nil
		})
	}
	answers := func(from *ctrv1.Container, servers ...*ctrv1.Container) {
		t.Helper()
		for _, to := range servers {
			eventually(t, to.Name+" answers", func(ctx context.Context) error { return checkIdentity(ctx, from, to) })
		}
	}
	asked := peering(ours, "to-them", theirs)
	create(t, asked)
	peeringSays(t, asked, status.Pending, "waits until tenant "+theirs+" agrees")
	silent(sh, near)

	agreed := peering(theirs, "to-us", ours)
	create(t, agreed, peering(strangers, "uninvited", ours))
	peeringSays(t, asked, status.Ready, "reach each other")
	peeringSays(t, agreed, status.Ready, "reach each other")
	answers(sh, near, far)
	answers(back, server)
	silent(sh, closed) // its SecurityGroup lets nothing in
	silent(stranger, server)
	trace, err := mni(t.Context(), "net", "trace", "--from", ours+"/"+sh.Status.Pod, "--to", far.Status.Address+":8080")
	if err != nil || !strings.Contains(trace, "a peering leads "+far.Status.Address+" to Subnet "+theirs+"/a") {
		t.Errorf("trace: %v\n%s", err, trace)
	}

	goes(t, agreed)
	peeringSays(t, asked, status.Pending, "waits until tenant "+theirs+" agrees")
	silent(sh, near)
	silent(sh, far)
	silent(back, server)
	isConsistent(t)
}
