package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// Indexes of the cache. Those named by a path in spec are selectable fields of the CRD too, so that the same query works
// on the API server itself.
const (
	// subnetByVPC: Subnets by their VPC's name.
	subnetByVPC = "spec.vpc"
	// interfaceBySubnet: NetworkInterfaces by their Subnet's name.
	interfaceBySubnet = "spec.subnet"
	// interfaceByPod: NetworkInterfaces by the UID of the Pod they are attached to, or that they are named by.
	interfaceByPod = "net.mnicloud.jp/pod-uid"
	// interfaceByNeed: NetworkInterfaces that are not Ready, by the Subnets they need an address of.
	interfaceByNeed = "net.mnicloud.jp/needs-subnet"
	// interfaceByNamespace: NetworkInterfaces by their namespace.
	interfaceByNamespace = "spec.namespace"
	// podByInterface: Pods by the name of their NetworkInterface.
	podByInterface = "net.mnicloud.jp/interface"
	// podBySubnet: Pods by the name of their Subnet.
	podBySubnet = "net.mnicloud.jp/subnet"
)

// addIndexes registers the indexes.
func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, index := range []struct {
		object client.Object
		field  string
		values func(client.Object) []string
	}{
		{&netv1.Subnet{}, subnetByVPC, func(o client.Object) []string { return []string{o.(*netv1.Subnet).Spec.VPC} }},
		{&netv1.NetworkInterface{}, interfaceBySubnet, func(o client.Object) []string { return []string{o.(*netv1.NetworkInterface).Spec.Subnet} }},
		{&netv1.NetworkInterface{}, interfaceByNamespace, func(o client.Object) []string { return []string{o.(*netv1.NetworkInterface).Spec.Namespace} }},
		{&netv1.NetworkInterface{}, interfaceByPod, func(o client.Object) []string { return podUIDs(o.(*netv1.NetworkInterface)) }},
		{&netv1.NetworkInterface{}, interfaceByNeed, func(o client.Object) []string { return needs(o.(*netv1.NetworkInterface)) }},
		{&netv1.IPLease{}, ipam.FieldInterfaceUID, func(o client.Object) []string { return []string{string(o.(*netv1.IPLease).Spec.InterfaceUID)} }},
		{&netv1.IPLease{}, ipam.FieldSubnet, func(o client.Object) []string { return []string{o.(*netv1.IPLease).Spec.Subnet} }},
		{&corev1.Pod{}, podByInterface, func(o client.Object) []string {
			return podValue(o, func(p *corev1.Pod) string { return interfaceName(p) })
		}},
		{&corev1.Pod{}, podBySubnet, func(o client.Object) []string {
			return podValue(o, func(p *corev1.Pod) string { return subnetName(p) })
		}},
	} {
		if err := indexer.IndexField(ctx, index.object, index.field, index.values); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.object, index.field, err)
		}
	}
	return nil
}

func podValue(o client.Object, value func(*corev1.Pod) string) []string {
	pod := o.(*corev1.Pod)
	if !networked(pod) {
		return nil
	}
	return []string{value(pod)}
}

// podUIDs are the UIDs of Pods whose life matters to the interface.
func podUIDs(nic *netv1.NetworkInterface) []string {
	var uids []string
	if nic.Spec.Pod != nil {
		uids = append(uids, string(nic.Spec.Pod.UID))
	}
	if nic.Annotations[netv1.AnnotationHolderPod] != "" && (nic.Spec.Pod == nil || string(nic.Spec.Pod.UID) != nic.Name) {
		uids = append(uids, nic.Name)
	}
	return uids
}

// needs are the Subnets that an interface without all of its addresses needs one of.
func needs(nic *netv1.NetworkInterface) []string {
	if meta.IsStatusConditionTrue(nic.Status.Conditions, status.ConditionReady) {
		return nil
	}
	if nic.Spec.Subnet == netv1.DefaultSubnet {
		return []string{netv1.DefaultSubnet}
	}
	return []string{nic.Spec.Subnet, netv1.DefaultSubnet}
}
