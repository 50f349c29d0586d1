package cli

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

const (
	// groupSuffix ends the name of every API group of the cloud.
	groupSuffix = ".mnicloud.jp"
	// category is the discovery category of the kinds that tenants use; `mni get all` lists them.
	category = "mni"
)

// groupOrder ranks the cloud's API groups: a word such as "subnet" means the kind of the first group that has it.
// Kubernetes' own groups come between the tenants' and the cloud's internal ones.
var groupOrder = map[string]int{
	"vpc.mnicloud.jp": 1, "ctr.mnicloud.jp": 2, "bs.mnicloud.jp": 3, "vm.mnicloud.jp": 4, "vpn.mnicloud.jp": 5,
	"auth.mnicloud.jp": 6, "kodiak.mnicloud.jp": 101, "operator.mnicloud.jp": 102, "net.mnicloud.jp": 103,
}

func groupRank(group string) int {
	if rank, ok := groupOrder[group]; ok {
		return rank
	}
	if rank, ok := groupOrder[group+groupSuffix]; ok {
		return rank // the gateway's short form: vpc/v1alpha1
	}
	if strings.HasSuffix(group, groupSuffix) {
		return 50
	}
	return 100
}

// ofTenants tells whether tenants use the group's kinds.
func ofTenants(group string) bool { return groupRank(group) < 100 }

// ofCloud tells whether the group is one of the cloud's own.
func ofCloud(group string) bool { return strings.HasSuffix(group, groupSuffix) }

// tenantsFirst orders what discovery finds by groupOrder.
type tenantsFirst struct {
	discovery.CachedDiscoveryInterface
}

// ServerGroupsAndResources implements discovery.DiscoveryInterface.
func (d tenantsFirst) ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups, resources, err := d.CachedDiscoveryInterface.ServerGroupsAndResources()
	groups, resources = slices.Clone(groups), slices.Clone(resources)
	slices.SortStableFunc(groups, func(a, b *metav1.APIGroup) int { return groupRank(a.Name) - groupRank(b.Name) })
	slices.SortStableFunc(resources, func(a, b *metav1.APIResourceList) int {
		return groupRank(groupOf(a)) - groupRank(groupOf(b))
	})
	return groups, resources, err
}

func groupOf(list *metav1.APIResourceList) string {
	gv, _ := schema.ParseGroupVersion(list.GroupVersion)
	return gv.Group
}

// tenantKinds are the words for the kinds that tenants use: "vpc", "subnet", "container".
func tenantKinds(d discovery.DiscoveryInterface) ([]string, error) {
	_, lists, err := d.ServerGroupsAndResources()
	if len(lists) == 0 {
		return nil, err
	}
	var words []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			if slices.Contains(r.Categories, category) && !slices.Contains(words, r.SingularName) {
				words = append(words, r.SingularName)
			}
		}
	}
	return words, nil
}

// everythingWord makes `all` mean the cloud's category instead of Kubernetes' own.
func everythingWord(args []string) []string {
	if len(args) > 0 && args[0] == "all" {
		args = append([]string{category}, args[1:]...)
	}
	return args
}

// display is an object in messages: "vpc/net", "deployment.apps/web".
func display(gk schema.GroupKind, name string) string {
	if ofTenants(gk.Group) {
		gk.Group = ""
	}
	return strings.ToLower(gk.String()) + "/" + name
}

// namespaced tells whether a mapping's objects live in namespaces.
func namespaced(mapping *meta.RESTMapping) bool {
	return mapping.Scope.Name() == meta.RESTScopeNameNamespace
}

// kindOf finds the kind that the details of an API error speak of; they name it by kind or by resource.
func (c *connection) kindOf(details *metav1.StatusDetails) schema.GroupKind {
	gk := schema.GroupKind{Group: details.Group, Kind: details.Kind}
	if mapper, err := c.mapper(); err == nil {
		if gvk, err := mapper.KindFor(schema.GroupVersionResource{Group: details.Group, Resource: details.Kind}); err == nil {
			return gvk.GroupKind()
		}
	}
	return gk
}
