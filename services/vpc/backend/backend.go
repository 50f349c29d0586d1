// Package backend is the seam between what tenants see (vpc.mnicloud.jp) and the network that does it. The VPC controller
// decides what a tenant may have; a backend makes it, tells how it is in words a tenant understands, and takes it away.
//
// What comes in is tenants' Vpcs, Subnets, RouteTables and SecurityGroups; what goes out is objects of the network, named by the UIDs of the tenants'
// objects, so that no name a tenant chooses reaches them. A backend knows no conditions of them.
package backend

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/mnicloud/mnicloud/kit/conditions"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
)

// Subnet is what a backend made of a tenant's Subnet.
type Subnet struct {
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
	EnsureSubnet(ctx context.Context, vpc *vpcv1.Vpc, subnet *vpcv1.Subnet, table types.UID) (Subnet, conditions.Result, error)
	// EnsureRouteTable makes the network's table for a tenant's RouteTable and tells how it is. A route whose target is not there
	// drops.
	EnsureRouteTable(ctx context.Context, vpc *vpcv1.Vpc, table *vpcv1.RouteTable) (conditions.Result, error)
	// DeleteRouteTable deletes what was made for the RouteTable with the UID, and tells whether it is gone.
	DeleteRouteTable(ctx context.Context, uid types.UID) (gone bool, err error)
	// RouteTablesOf lists the UIDs that anything was made for under the name of a tenant's RouteTable.
	RouteTablesOf(ctx context.Context, name types.NamespacedName) ([]types.UID, error)
	// WatchRouteTables makes a controller of RouteTables look again when what was made for one, or what one leads to, changes.
	WatchRouteTables(b *ctrl.Builder)
	// EnsureSecurityGroup makes the network's group for a tenant's SecurityGroup and tells how it is. peers are the UIDs of the
	// SecurityGroups that its rules name; a rule whose group is not among them allows nothing.
	EnsureSecurityGroup(ctx context.Context, group *vpcv1.SecurityGroup, peers map[string]types.UID) (conditions.Result, error)
	// UsersOfSecurityGroup names what is in the group made for the tenant's SecurityGroup with the UID.
	UsersOfSecurityGroup(ctx context.Context, uid types.UID) ([]string, error)
	// DeleteSecurityGroup deletes what was made for the SecurityGroup with the UID, and tells whether it is gone.
	DeleteSecurityGroup(ctx context.Context, uid types.UID) (gone bool, err error)
	// SecurityGroupsOf lists the UIDs that anything was made for under the name of a tenant's SecurityGroup.
	SecurityGroupsOf(ctx context.Context, name types.NamespacedName) ([]types.UID, error)
	// WatchSecurityGroups makes a controller of SecurityGroups look again when what was made for one, or its use, changes.
	WatchSecurityGroups(b *ctrl.Builder)
	// UsersOfSubnet names what has an address in the Subnet made for the tenant's Subnet with the UID ("Container web-0").
	UsersOfSubnet(ctx context.Context, uid types.UID) ([]string, error)
	// DeleteVPC deletes what was made for the Vpc with the UID, and tells whether it is gone. It looks at what is there,
	// not at what ought to be.
	DeleteVPC(ctx context.Context, uid types.UID) (gone bool, err error)
	// DeleteSubnet deletes what was made for the Subnet with the UID, and tells whether it is gone.
	DeleteSubnet(ctx context.Context, uid types.UID) (gone bool, err error)
	// VPCsOf lists the UIDs that anything was made for under the name of a tenant's Vpc.
	VPCsOf(ctx context.Context, name types.NamespacedName) ([]types.UID, error)
	// SubnetsOf lists the UIDs that anything was made for under the name of a tenant's Subnet.
	SubnetsOf(ctx context.Context, name types.NamespacedName) ([]types.UID, error)
	// WatchVPCs makes a controller of Vpcs look again when what was made for one changes.
	WatchVPCs(b *ctrl.Builder)
	// WatchSubnets makes a controller of Subnets look again when what was made for one, or its use, changes.
	WatchSubnets(b *ctrl.Builder)
}
