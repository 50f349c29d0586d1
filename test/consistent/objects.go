package consistent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
	"github.com/mnicloud/mnicloud/services/vpc/backend/netbackend"
)

// Objects says what does not fit together among Subnets, interfaces, external addresses, leases and Pods in the API server.
func Objects(ctx context.Context, from client.Reader) ([]string, error) {
	var subnets netv1.SubnetList
	var nics netv1.NetworkInterfaceList
	var leases netv1.IPLeaseList
	var pods corev1.PodList
	var eips netv1.ExternalIPList
	var fips netv1.FloatingIPList
	for _, list := range []client.ObjectList{&subnets, &nics, &leases, &pods, &eips, &fips} {
		if err := from.List(ctx, list); err != nil {
			return nil, err
		}
	}
	wrong := compareLeases(nics.Items, eips.Items, leases.Items)
	wrong = append(wrong, compareFloating(eips.Items, fips.Items, nics.Items)...)
	wrong = append(wrong, comparePods(nics.Items, pods.Items)...)
	return append(wrong, compareSubnets(subnets.Items, nics.Items)...), nil
}

// compareLeases: each published address has a lease, each lease in use is of a published address, and none has two holders.
func compareLeases(nics []netv1.NetworkInterface, eips []netv1.ExternalIP, leases []netv1.IPLease) []string {
	var wrong []string
	want := map[string]types.UID{}
	for i := range nics {
		nic := &nics[i]
		for _, name := range published(nic) {
			if other, double := want[name]; double {
				wrong = append(wrong, fmt.Sprintf("address %s is published by NetworkInterface %s and by one with UID %s", name, nic.Name, other))
			}
			want[name] = nic.UID
		}
	}
	for i := range eips {
		eip := &eips[i]
		if eip.Status.Address == "" {
			continue
		}
		name := fmt.Sprintf("%d.%s", ipam.ExternalVNI, eip.Status.Address)
		if other, double := want[name]; double {
			wrong = append(wrong, fmt.Sprintf("address %s is ExternalIP %s's and of one with UID %s", eip.Status.Address, eip.Name, other))
		}
		want[name] = eip.UID
	}
	for i := range leases {
		lease := &leases[i]
		if lease.Spec.ReleasedAt != nil {
			continue
		}
		if holder, ok := want[lease.Name]; !ok || holder != lease.Spec.InterfaceUID {
			wrong = append(wrong, fmt.Sprintf("IPLease %s is of %s (UID %s), which does not publish it", lease.Name, lease.Spec.Interface, lease.Spec.InterfaceUID))
		}
		delete(want, lease.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		wrong = append(wrong, fmt.Sprintf("address %s of the object with UID %s has no lease", name, want[name]))
	}
	return wrong
}

// compareFloating: a FloatingIP leads from the address of the ExternalIP that it has to an interface that is there, and no two from one
// address or to one interface.
func compareFloating(eips []netv1.ExternalIP, fips []netv1.FloatingIP, nics []netv1.NetworkInterface) []string {
	var wrong []string
	addresses, targets := map[string]string{}, map[string]string{}
	for i := range eips {
		if user := eips[i].Status.UsedBy; user != nil && user.Kind == netv1.KindFloatingIP {
			addresses[eips[i].Status.Address] = user.Name
		}
	}
	for i := range nics {
		targets[fmt.Sprintf("%d.%s", nics[i].Status.VNI, nics[i].Status.Address)] = nics[i].Name
	}
	for i := range fips {
		fip := &fips[i]
		s := fip.Status
		if s.ExternalAddress == "" {
			continue
		}
		if addresses[s.ExternalAddress] != fip.Name {
			wrong = append(wrong, fmt.Sprintf("FloatingIP %s leads from %s, which is %q's", fip.Name, s.ExternalAddress, addresses[s.ExternalAddress]))
		}
		delete(addresses, s.ExternalAddress)
		target := fmt.Sprintf("%d.%s", s.VNI, s.Address)
		if targets[target] != fip.Spec.NetworkInterface {
			wrong = append(wrong, fmt.Sprintf("FloatingIP %s leads to %s, which is %q's and not NetworkInterface %s's", fip.Name, target, targets[target], fip.Spec.NetworkInterface))
		}
		delete(targets, target)
	}
	return wrong
}

// published are the names of the leases that an interface's status stands for.
func published(nic *netv1.NetworkInterface) []string {
	if nic.Status.Address == "" {
		return nil
	}
	names := []string{fmt.Sprintf("%d.%s", nic.Status.VNI, nic.Status.Address)}
	if nic.Status.VNI != netv1.DefaultVNI {
		names = append(names, fmt.Sprintf("%d.%s", netv1.DefaultVNI, nic.Status.InfrastructureAddress))
	}
	return names
}

// comparePods: each Pod that runs has one interface, on its node, and its address is the interface's; no interface is attached
// to a Pod that is not there.
func comparePods(nics []netv1.NetworkInterface, pods []corev1.Pod) []string {
	var wrong []string
	byPod := map[types.UID][]*netv1.NetworkInterface{}
	for i := range nics {
		if pod := nics[i].Spec.Pod; pod != nil {
			byPod[pod.UID] = append(byPod[pod.UID], &nics[i])
		}
	}
	for i := range pods {
		pod := &pods[i]
		has := byPod[pod.UID]
		delete(byPod, pod.UID)
		if pod.Spec.HostNetwork || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		name := pod.Namespace + "/" + pod.Name
		switch {
		case len(has) != 1:
			wrong = append(wrong, fmt.Sprintf("Pod %s runs and has %d interfaces", name, len(has)))
		case has[0].Spec.Node != pod.Spec.NodeName:
			wrong = append(wrong, fmt.Sprintf("Pod %s is on node %s, its NetworkInterface %s on %q", name, pod.Spec.NodeName, has[0].Name, has[0].Spec.Node))
		case pod.Status.PodIP != has[0].Status.InfrastructureAddress:
			wrong = append(wrong, fmt.Sprintf("Pod %s says its address is %q, its NetworkInterface %s says %q", name, pod.Status.PodIP, has[0].Name, has[0].Status.InfrastructureAddress))
		}
	}
	for uid, left := range byPod {
		for _, nic := range left {
			wrong = append(wrong, fmt.Sprintf("NetworkInterface %s is attached to Pod %s/%s (UID %s), which does not exist", nic.Name, nic.Spec.Pod.Namespace, nic.Spec.Pod.Name, uid))
		}
	}
	return wrong
}

// compareSubnets: no two have one VNI, and each address is within its Subnet.
func compareSubnets(subnets []netv1.Subnet, nics []netv1.NetworkInterface) []string {
	var wrong []string
	byName, byVNI := map[string]*netv1.Subnet{}, map[uint32]string{}
	for i := range subnets {
		s := &subnets[i]
		byName[s.Name] = s
		if other := byVNI[s.Status.VNI]; s.Status.VNI != 0 && other != "" {
			wrong = append(wrong, fmt.Sprintf("Subnets %s and %s have one VNI, %d", s.Name, other, s.Status.VNI))
		}
		byVNI[s.Status.VNI] = s.Name
	}
	for i := range nics {
		nic := &nics[i]
		s := byName[nic.Spec.Subnet]
		switch {
		case s == nil:
			wrong = append(wrong, fmt.Sprintf("NetworkInterface %s is in Subnet %s, which does not exist", nic.Name, nic.Spec.Subnet))
		case nic.Status.VNI != 0 && nic.Status.VNI != s.Status.VNI:
			wrong = append(wrong, fmt.Sprintf("NetworkInterface %s has VNI %d, its Subnet %s %d", nic.Name, nic.Status.VNI, s.Name, s.Status.VNI))
		}
	}
	return wrong
}

// Gone says what is left of namespaces that were deleted, and of objects named by UIDs that are no more.
func Gone(ctx context.Context, from client.Reader, namespaces ...string) ([]string, error) {
	var nics netv1.NetworkInterfaceList
	var leases netv1.IPLeaseList
	var vpcs netv1.VPCList
	var tables netv1.RouteTableList
	var eips netv1.ExternalIPList
	var blocks netv1.PortBlockList
	for _, list := range []client.ObjectList{&nics, &leases, &vpcs, &tables, &eips, &blocks} {
		if err := from.List(ctx, list); err != nil {
			return nil, err
		}
	}
	left, err := labelled(ctx, from, namespaces)
	if err != nil {
		return nil, err
	}
	gateways := map[string]bool{}
	var all netv1.NATGatewayList
	if err := from.List(ctx, &all); err != nil {
		return nil, err
	}
	for i := range all.Items {
		gateways[all.Items[i].Name] = true
	}
	for i := range blocks.Items {
		if b := &blocks.Items[i]; b.Spec.ReleasedAt == nil && !gateways[b.Spec.NATGateway] {
			left = append(left, fmt.Sprintf("PortBlock %s of node %s and NATGateway %s", b.Name, b.Spec.Node, b.Spec.NATGateway))
		}
	}
	alive := map[types.UID]bool{}
	for i := range nics.Items {
		nic := &nics.Items[i]
		alive[nic.UID] = true
		if slices.Contains(namespaces, nic.Spec.Namespace) {
			left = append(left, fmt.Sprintf("NetworkInterface %s of namespace %s", nic.Name, nic.Spec.Namespace))
		}
	}
	for i := range eips.Items {
		alive[eips.Items[i].UID] = true
	}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if lease.Spec.ReleasedAt != nil {
			if vni, _, err := ipam.ParseLeaseName(lease.Name); err == nil && (vni == netv1.DefaultVNI || vni == ipam.ExternalVNI) {
				continue // in quarantine
			}
		}
		if !alive[lease.Spec.InterfaceUID] {
			left = append(left, fmt.Sprintf("IPLease %s of %s", lease.Name, lease.Spec.Interface))
		}
	}
	isVPC := func(name string) bool {
		return slices.ContainsFunc(vpcs.Items, func(v netv1.VPC) bool { return v.Name == name })
	}
	for i := range tables.Items {
		if table := &tables.Items[i]; !isVPC(table.Spec.VPC) {
			left = append(left, fmt.Sprintf("RouteTable %s of VPC %s", table.Name, table.Spec.VPC))
		}
	}
	for i := range vpcs.Items {
		for _, namespace := range namespaces {
			if slices.Contains(vpcs.Items[i].Spec.Namespaces, namespace) {
				left = append(left, fmt.Sprintf("VPC %s of namespace %s", vpcs.Items[i].Name, namespace))
			}
		}
	}
	for _, namespace := range namespaces {
		if err := from.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); client.IgnoreNotFound(err) != nil {
			return nil, err
		} else if err == nil {
			left = append(left, "Namespace "+namespace)
		}
	}
	return left, nil
}

// labelled are the objects of the network that the VPC service made for namespaces.
func labelled(ctx context.Context, from client.Reader, namespaces []string) (left []string, err error) {
	for _, list := range []client.ObjectList{
		&netv1.VPCList{}, &netv1.SubnetList{}, &netv1.RouteTableList{}, &netv1.VPCPeeringList{}, &netv1.SecurityGroupList{},
		&netv1.ExternalIPList{}, &netv1.FloatingIPList{}, &netv1.NATGatewayList{},
	} {
		for _, namespace := range namespaces {
			if err := from.List(ctx, list, client.MatchingLabels{netbackend.LabelNamespace: namespace}); err != nil {
				return nil, err
			}
			if n := meta.LenList(list); n > 0 {
				left = append(left, fmt.Sprintf("%d in %T of namespace %s", n, list, namespace))
			}
		}
	}
	return left, nil
}

// Error makes an error of differences; nil when there are none.
func Error(wrong []string, err error) error {
	if err != nil || len(wrong) == 0 {
		return err
	}
	slices.Sort(wrong)
	return fmt.Errorf("%d differences:\n  %s", len(wrong), strings.Join(wrong, "\n  "))
}
