package claim

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/conditions"
	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// Addresses gives interfaces their addresses.
type Addresses struct {
	// Client reads the default Subnet.
	Client client.Reader
	IPAM   *ipam.Allocator
}

// The bounds of a Subnet's CIDR, as its validation has them.
const (
	// MinPrefixLength is that of the largest Subnet.
	MinPrefixLength = 8
	// MaxPrefixLength is that of the smallest Subnet.
	MaxPrefixLength = 30
)

// Allocate leases the interface's addresses and fills in the status. The Subnet's address comes first: an interface that
// gets none holds no infrastructure address either.
func (a *Addresses) Allocate(ctx context.Context, nic *netv1.NetworkInterface, subnet *netv1.Subnet, vpc *netv1.VPC, s *netv1.NetworkInterfaceStatus) (conditions.Result, error) {
	if o, ok := checkNetwork(nic, subnet, vpc); !ok {
		return o, nil
	}
	network, _ := NetworkOf(subnet)
	want, current, o, ok := wanted(nic, network)
	if !ok {
		return o, nil
	}
	holder := ipam.Holder{Name: nic.Name, UID: nic.UID}
	address, err := a.IPAM.Ensure(ctx, network, holder, want, current)
	if lost := new(ipam.InUseError); errors.As(err, &lost) && !want.IsValid() && nic.Spec.Pod == nil {
		// The address was kept for a Pod to come, but the lease was taken away: the interface starts anew.
		address, err = a.IPAM.Ensure(ctx, network, holder, want, netip.Addr{})
	}
	if err != nil {
		return AsResult(err)
	}
	infra := address
	if subnet.Name != netv1.DefaultSubnet {
		infra, o, err = a.infrastructure(ctx, nic, holder)
		if err != nil || !infra.IsValid() {
			return o, err
		}
	}
	if s.MAC == "" {
		if s.MAC, err = NewMAC(); err != nil {
			return conditions.Result{}, err
		}
	}
	s.Address = address.String()
	s.PrefixLength = int32(network.CIDR.Bits())
	s.GatewayAddress = subnet.Status.GatewayAddress
	s.InfrastructureAddress = infra.String()
	s.VNI = subnet.Status.VNI
	s.VPCID = subnet.Status.VPCID
	return conditions.Ready(ReasonReady, "the interface has its addresses"), nil
}

// infrastructure leases an address of the default Subnet; when the result says why not, it is not valid.
func (a *Addresses) infrastructure(ctx context.Context, nic *netv1.NetworkInterface, holder ipam.Holder) (netip.Addr, conditions.Result, error) {
	var home netv1.Subnet
	if err := a.Client.Get(ctx, client.ObjectKey{Name: netv1.DefaultSubnet}, &home); client.IgnoreNotFound(err) != nil {
		return netip.Addr{}, conditions.Result{}, fmt.Errorf("read the default Subnet: %w", err)
	}
	network, ok := NetworkOf(&home)
	if !ok {
		return netip.Addr{}, conditions.Waiting(ReasonWaitingForSubnet, "the default Subnet, which gives infrastructure addresses, is not ready yet"), nil
	}
	current, _ := netip.ParseAddr(nic.Status.InfrastructureAddress)
	address, err := a.IPAM.Ensure(ctx, network, holder, netip.Addr{}, current)
	if lost := new(ipam.InUseError); errors.As(err, &lost) && nic.Spec.Pod == nil {
		address, err = a.IPAM.Ensure(ctx, network, holder, netip.Addr{}, netip.Addr{})
	}
	if err != nil {
		o, err := AsResult(err)
		return netip.Addr{}, o, err
	}
	return address, conditions.Result{}, nil
}

// NetworkOf is what the allocator needs of a Subnet; ok is false while the Subnet is not confirmed.
func NetworkOf(subnet *netv1.Subnet) (ipam.Network, bool) {
	cidr, ok := ParseCIDR(subnet.Spec.CIDR)
	return ipam.Network{Subnet: subnet.Name, VPC: subnet.Spec.VPC, VNI: subnet.Status.VNI, CIDR: cidr}, ok && confirmed(subnet)
}

// checkNetwork decides whether the interface may have addresses now. One that has them keeps them.
func checkNetwork(nic *netv1.NetworkInterface, subnet *netv1.Subnet, vpc *netv1.VPC) (o conditions.Result, ok bool) {
	switch {
	case subnet == nil:
		return conditions.Waiting(ReasonWaitingForSubnet, "spec.subnet: Subnet "+nic.Spec.Subnet+" does not exist yet"), false
	case !confirmed(subnet):
		message := "spec.subnet: Subnet " + nic.Spec.Subnet + " is not ready yet"
		if why := meta.FindStatusCondition(subnet.Status.Conditions, status.ConditionReady); why != nil {
			message += " (" + why.Message + ")"
		}
		return conditions.Waiting(ReasonWaitingForSubnet, message), false
	case nic.Status.Address != "":
		return conditions.Result{}, true
	case !subnet.DeletionTimestamp.IsZero():
		return conditions.Failed(ReasonSubnetDeleting, "spec.subnet: Subnet "+nic.Spec.Subnet+" is being deleted; use another Subnet"), false
	case nic.Spec.Pod == nil && nic.Status.ReleasedAt != nil:
		return conditions.Waiting(ReasonWaitingForPod, "the interface gets an address when a Pod attaches"), false
	case vpc == nil:
		return conditions.Waiting(ReasonWaitingForVPC, "VPC "+subnet.Spec.VPC+" of Subnet "+subnet.Name+" does not exist"), false
	}
	if no := CheckAccess(nic.Spec.Namespace, subnet, vpc); no != nil {
		return conditions.Failed(no.Reason, "spec.namespace: "+no.Message), false
	}
	return conditions.Result{}, true
}

// wanted is the address the spec asks for and the one the interface has, both maybe none. A Pod's address does not change
// under it.
func wanted(nic *netv1.NetworkInterface, network ipam.Network) (want, current netip.Addr, o conditions.Result, ok bool) {
	current, _ = netip.ParseAddr(nic.Status.Address)
	if nic.Spec.Address == "" {
		return want, current, o, true
	}
	want, err := ipam.Range{CIDR: network.CIDR}.Check(network.Subnet, nic.Spec.Address)
	if err != nil {
		o, _ = AsResult(err)
		return want, current, o, false
	}
	if current.IsValid() && current != want && nic.Spec.Pod != nil {
		return want, current, conditions.Failed(ReasonAddressInterface, "spec.address: the interface has "+current.String()+
			" and Pod "+nic.Spec.Pod.Namespace+"/"+nic.Spec.Pod.Name+" uses it; delete the Pod first, or put the address back"), false
	}
	return want, current, o, true
}

// AsResult tells a failed allocation as a result; other errors remain errors. That nothing is free is a wait: it ends when
// another interface goes.
func AsResult(err error) (conditions.Result, error) {
	var exhausted *ipam.ExhaustedError
	var inUse *ipam.InUseError
	var invalid *ipam.InvalidAddressError
	switch {
	case errors.As(err, &exhausted):
		return conditions.Waiting(ReasonExhausted, exhausted.Error()), nil
	case errors.As(err, &inUse):
		return conditions.Failed(ReasonAddressInUse, inUse.Error()), nil
	case errors.As(err, &invalid):
		return conditions.Failed(ReasonAddressInvalid, invalid.Error()), nil
	}
	return conditions.Result{}, err
}

// ParseCIDR returns a Subnet's range. The API server validates it too; this is for objects older than a rule.
func ParseCIDR(cidr string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil || !p.Addr().Is4() || p != p.Masked() || p.Bits() < MinPrefixLength || p.Bits() > MaxPrefixLength {
		return netip.Prefix{}, false
	}
	return p, true
}

// NewMAC makes a random MAC address, unicast and locally administered (IEEE 802: the two lowest bits of the first octet).
func NewMAC() (string, error) {
	mac := make(net.HardwareAddr, 6)
	if _, err := rand.Read(mac); err != nil {
		return "", fmt.Errorf("make a MAC address: %w", err)
	}
	mac[0] = mac[0]&^0x03 | 0x02
	return mac.String(), nil
}

// confirmed tells whether the Subnet has all its numbers: it is in use.
func confirmed(subnet *netv1.Subnet) bool { return subnet.Status.GatewayMAC != "" }
