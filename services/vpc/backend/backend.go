// Package backend is the seam between what tenants see (vpc.mnicloud.jp) and the network that does it. The VPC controller
// decides what a tenant may have; a backend makes it, tells how it is in words a tenant understands, and takes it away.
//
// What comes in is tenants' objects of all kinds of vpc.mnicloud.jp; what goes out is objects of the network, named by the UIDs of the tenants'
// objects, so that no name a tenant chooses reaches them. A backend knows no conditions of them.
package backend

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/mnicloud/mnicloud/kit/conditions"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// Kind is a kind of tenants' objects that a backend makes something for.
type Kind string

// The kinds.
const (
	Vpc           Kind = "Vpc"
	Subnet        Kind = "Subnet"
	RouteTable    Kind = "RouteTable"
	SecurityGroup Kind = "SecurityGroup"
	ExternalIP    Kind = "ExternalIP"
	FloatingIP    Kind = "FloatingIP"
	NATGateway    Kind = "NATGateway"
	VpcPeering    Kind = "VpcPeering"
)

// SubnetMade is what a backend made of a tenant's Subnet.
type SubnetMade struct {
	// GatewayAddress is the Subnet's gateway.
	GatewayAddress string
	// Attachment is how workloads join.
	Attachment *vpcv1.Attachment
}

// Backend is a network that VPCs can be made on. Every method may be called again at any time; one that finds everything
// as it should be sends no writes.
type Backend interface {
	// EnsureVPC makes the network's VPC for a tenant's Vpc and tells how it is.
	EnsureVPC(ctx context.Context, vpc *vpcv1.Vpc) (conditions.Result, error)
	// EnsureSubnet makes the network's Subnet for a tenant's Subnet and tells how it is. What is returned counts when the
	// result is Ready. Table is the UID of the RouteTable whose routes count in it; "" for none.
	EnsureSubnet(ctx context.Context, vpc *vpcv1.Vpc, subnet *vpcv1.Subnet, table types.UID) (SubnetMade, conditions.Result, error)
	// EnsureRouteTable makes the network's table for a tenant's RouteTable and tells how it is. gateways are the UIDs of the NATGateways
	// that its routes lead to; those that are not among them do not exist. A route whose target is not there drops.
	EnsureRouteTable(ctx context.Context, vpc *vpcv1.Vpc, table *vpcv1.RouteTable, gateways map[string]types.UID) (conditions.Result, error)
	// EnsureSecurityGroup makes the network's group for a tenant's SecurityGroup and tells how it is. peers are the UIDs of the
	// SecurityGroups that its rules name; a rule whose group is not among them allows nothing.
	EnsureSecurityGroup(ctx context.Context, group *vpcv1.SecurityGroup, peers map[string]types.UID) (conditions.Result, error)
	// EnsureExternalIP gets an external address for a tenant's ExternalIP, fills in its address and user, and tells how it is.
	EnsureExternalIP(ctx context.Context, eip *vpcv1.ExternalIP) (conditions.Result, error)
	// EnsureFloatingIP leads the address of the ExternalIP with the UID to the target of a tenant's FloatingIP, fills in both addresses,
	// and tells how it is.
	EnsureFloatingIP(ctx context.Context, fip *vpcv1.FloatingIP, eip types.UID) (conditions.Result, error)
	// EnsureNATGateway makes the network's gateway for a tenant's NATGateway, fills in its addresses and Subnets, and tells how it is.
	// named are the UIDs of the Subnets and ExternalIPs that it names; those that are not among them do not exist.
	EnsureNATGateway(ctx context.Context, vpc *vpcv1.Vpc, nat *vpcv1.NATGateway, named Named) (conditions.Result, error)
	// EnsurePeering makes the network's agreement of one Vpc to be joined with another, and tells how it is: nothing passes before the
	// other has agreed, too.
	EnsurePeering(ctx context.Context, peering *vpcv1.VpcPeering, own, peer *vpcv1.Vpc) (conditions.Result, error)
	// UsersOfSecurityGroup names what is in the group made for the tenant's SecurityGroup with the UID.
	UsersOfSecurityGroup(ctx context.Context, uid types.UID) ([]string, error)
	// UsersOfSubnet names what has an address in the Subnet made for the tenant's Subnet with the UID ("Container web-0").
	UsersOfSubnet(ctx context.Context, uid types.UID) ([]string, error)
	// UserOfExternalIP names what has the address got for the tenant's ExternalIP with the UID ("FloatingIP web"); "" when nothing has.
	UserOfExternalIP(ctx context.Context, uid types.UID) (string, error)
	// Delete deletes what was made for the object of the kind with the UID, and tells whether it is gone. It looks at what is there,
	// not at what ought to be.
	Delete(ctx context.Context, kind Kind, uid types.UID) (gone bool, err error)
	// MadeFor lists the UIDs that anything was made for under the name of a tenant's object of the kind.
	MadeFor(ctx context.Context, kind Kind, name types.NamespacedName) ([]types.UID, error)
	// Watch makes a controller of the kind look again when what was made for an object, its use, or what it leads to changes.
	Watch(b *ctrl.Builder, kind Kind)
}

// Named are UIDs by the names of tenants' objects.
type Named struct {
	Subnets, ExternalIPs map[string]types.UID
}
