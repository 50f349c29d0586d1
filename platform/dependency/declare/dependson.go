package declare

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mnicloud/mnicloud/kit/dependency"
	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// groupSuffix ends the name of every API group of the cloud.
const groupSuffix = ".mnicloud.jp"

// OfCloud tells whether an API group is one of the cloud's.
func OfCloud(group string) bool { return strings.HasSuffix(group, groupSuffix) }

// DependsOn reads spec.dependsOn of an object. Entries that are not what they should be are left out: the API server refuses them.
func DependsOn(object map[string]any) []dependency.Dependency {
	spec, _ := object["spec"].(map[string]any)
	list, _ := spec["dependsOn"].([]any)
	var out []dependency.Dependency
	for _, item := range list {
		entry, _ := item.(map[string]any)
		kind, _ := entry["kind"].(string)
		name, _ := entry["name"].(string)
		if kind != "" && name != "" {
			out = append(out, dependency.Dependency{Kind: kind, Name: name})
		}
	}
	return out
}

// Resolve finds the kind that a word means among the kinds: "Subnet", "Subnet.vpc" or "Subnet.vpc.mnicloud.jp".
func Resolve(word string, kinds []schema.GroupKind) (schema.GroupKind, error) {
	kind, group, _ := strings.Cut(word, ".")
	var found []schema.GroupKind
	for _, k := range kinds {
		if k.Kind == kind && (group == "" || group == k.Group || group+groupSuffix == k.Group) {
			found = append(found, k)
		}
	}
	slices.SortFunc(found, func(a, b schema.GroupKind) int { return strings.Compare(a.Group, b.Group) })
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return schema.GroupKind{}, fmt.Errorf("there is no kind %s that a tenant has resources of", word)
	}
	return schema.GroupKind{}, fmt.Errorf("several API groups have a kind %s: write %s or %s", word, found[0], found[1])
}

// DependsOnEdges are the edges of spec.dependsOn. What cannot be resolved is left out and told by an error.
func DependsOnEdges(namespace string, on []dependency.Dependency, kinds []schema.GroupKind) ([]graph.Edge, error) {
	var edges []graph.Edge
	var problem error
	for i, d := range on {
		field := fmt.Sprintf("spec.dependsOn[%d]", i)
		kind, err := Resolve(d.Kind, kinds)
		if err != nil {
			if problem == nil {
				problem = fmt.Errorf("%s.kind: %w", field, err)
			}
			continue
		}
		to := graph.Key{GroupKind: kind, Namespace: namespace, Name: d.Name}
		edges = append(edges, graph.Edge{To: to, Strength: graph.Needs, Field: field, Guarded: true})
	}
	return edges, problem
}
