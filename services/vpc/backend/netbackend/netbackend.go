// Package netbackend makes tenants' VPCs on the cloud's own network: a Vpc becomes a net.mnicloud.jp VPC, and everything else the
// object of the same kind there, each named by the tenant's object's UID and labelled with its namespace and name.
package netbackend

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/apply"
	"github.com/mnicloud/mnicloud/kit/conditions"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/services/vpc/backend"
)

// FieldOwner is the field manager of what the backend applies.
const FieldOwner = "vpc.mnicloud.jp/controller"

// Labels on the network's objects: whose they are.
const (
	// LabelNamespace is the tenant's namespace.
	LabelNamespace = "vpc.mnicloud.jp/namespace"
	// LabelName is the name of the tenant's object.
	LabelName = "vpc.mnicloud.jp/name"
)

// Backend projects onto net.mnicloud.jp. It implements backend.Backend.
type Backend struct {
	client client.Client
	live   client.Reader
}

var _ backend.Backend = (*Backend)(nil)

// New makes a backend that reads from the client's cache and, before it says that something is gone, from live. AddIndexes
// must have been called on the cache.
func New(c client.Client, live client.Reader) *Backend { return &Backend{client: c, live: live} }

// EnsureVPC implements backend.Backend.
func (b *Backend) EnsureVPC(ctx context.Context, vpc *vpcv1.Vpc) (conditions.Result, error) {
	live := &netv1.VPC{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: string(vpc.UID)}, live); client.IgnoreNotFound(err) != nil {
		return conditions.Result{}, fmt.Errorf("read the network's VPC: %w", err)
	}
	if !live.DeletionTimestamp.IsZero() {
		return remaking("Vpc", vpc.Name), nil
	}
	desired := &netv1.VPC{ObjectMeta: metadata(vpc), Spec: netv1.VPCSpec{Namespaces: []string{vpc.Namespace}}}
	desired.Labels[netv1.LabelDNSName] = vpc.Name
	if err := apply.Object(ctx, b.client, FieldOwner, live, desired); err != nil {
		return refused(err)
	}
	names := strings.NewReplacer(string(vpc.UID), vpc.Name)
	return resultOf("the Vpc", live, live.Status.Conditions, names), nil
}

// EnsureSubnet implements backend.Backend.
func (b *Backend) EnsureSubnet(ctx context.Context, vpc *vpcv1.Vpc, subnet *vpcv1.Subnet, table types.UID) (backend.SubnetMade, conditions.Result, error) {
	live := &netv1.Subnet{}
	if err := b.client.Get(ctx, client.ObjectKey{Name: string(subnet.UID)}, live); client.IgnoreNotFound(err) != nil {
		return backend.SubnetMade{}, conditions.Result{}, fmt.Errorf("read the network's Subnet: %w", err)
	}
	if !live.DeletionTimestamp.IsZero() {
		return backend.SubnetMade{}, remaking("Subnet", subnet.Name), nil
	}
	spec := netv1.SubnetSpec{VPC: string(vpc.UID), CIDR: subnet.Spec.CIDR, RouteTable: string(table)}
	desired := &netv1.Subnet{ObjectMeta: metadata(subnet), Spec: spec}
	if err := apply.Object(ctx, b.client, FieldOwner, live, desired); err != nil {
		result, err := refused(err)
		return backend.SubnetMade{}, result, err
	}
	made := backend.SubnetMade{
		GatewayAddress: live.Status.GatewayAddress,
		Attachment:     &vpcv1.Attachment{PodAnnotations: map[string]string{netv1.AnnotationSubnet: string(subnet.UID)}},
	}
	names := strings.NewReplacer(string(subnet.UID), subnet.Name, string(vpc.UID), vpc.Name)
	return made, resultOf("the Subnet", live, live.Status.Conditions, names), nil
}

// UsersOfSubnet implements backend.Backend.
func (b *Backend) UsersOfSubnet(ctx context.Context, uid types.UID) ([]string, error) {
	return b.users(ctx, interfaceBySubnet, uid)
}

// users names what has the interfaces that an index finds.
func (b *Backend) users(ctx context.Context, index string, uid types.UID) ([]string, error) {
	var list netv1.NetworkInterfaceList
	if err := b.client.List(ctx, &list, client.MatchingFields{index: string(uid)}); err != nil {
		return nil, fmt.Errorf("list the interfaces by %s: %w", index, err)
	}
	var users []string
	for i := range list.Items {
		users = append(users, userOf(&list.Items[i]))
	}
	slices.Sort(users)
	return slices.Compact(users), nil
}

// userOf names what has the interface, for the tenant.
func userOf(nic *netv1.NetworkInterface) string {
	switch {
	case nic.Annotations[netv1.AnnotationHolder] != "":
		return nic.Annotations[netv1.AnnotationHolder]
	case nic.Spec.Pod != nil:
		return "Pod " + nic.Spec.Pod.Name
	}
	return "interface " + nic.Name
}

// delete asks the API server itself: a cache may not know yet what was made a moment ago.
func (b *Backend) delete(ctx context.Context, obj client.Object, uid types.UID) (bool, error) {
	err := b.live.Get(ctx, client.ObjectKey{Name: string(uid)}, obj)
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read what was made for %s: %w", uid, err)
	}
	if obj.GetDeletionTimestamp() != nil {
		return false, nil
	}
	if err := b.client.Delete(ctx, obj); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete what was made for %s: %w", uid, err)
	}
	return false, nil
}

// metadata names and labels the network's object after the tenant's.
func metadata(owner client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:   string(owner.GetUID()),
		Labels: map[string]string{LabelNamespace: owner.GetNamespace(), LabelName: owner.GetName()},
	}
}
