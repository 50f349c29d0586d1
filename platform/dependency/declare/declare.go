// Package declare reads what a kind says of its references. A field that names another object of the tenant says so in the title of its
// schema, in words that people can read too:
//
//	names Container.ctr.mnicloud.jp
//	keeps RouteTable.vpc.mnicloud.jp
//	needs Vpc.vpc.mnicloud.jp
//	depends on Vpc.vpc.mnicloud.jp
//	names Container.ctr.mnicloud.jp when type is containers, VirtualMachine.vm.mnicloud.jp when type is virtualMachines
//
// The first three are graph.Strengths that the controllers of the kinds look after themselves; what a kind depends on, the Dependency
// Controller waits for and keeps, as it does for spec.dependsOn. A title is a part of the kind's definition, so it is in the API server's
// OpenAPI as well: whoever knows the kind knows its references, also of kinds that come later.
//
// What comes in is the schema of a kind, and later objects of it; what goes out is what they name.
package declare

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mnicloud/mnicloud/platform/dependency/graph"
)

// Kind is what a kind says of its references.
type Kind struct {
	// References are the fields that name other objects, in order.
	References []Reference
	// DependsOn: the kind has spec.dependsOn. Reports: it has status.dependencies. Dependents: it has status.dependents.
	DependsOn, Reports, Dependents bool
}

// Reference is a field that names other objects.
type Reference struct {
	// Path leads to the field; "[]" stands for each item of a list.
	Path     []string
	Strength graph.Strength
	Guarded  bool
	Targets  []Target
}

// Target is a kind that a field can name an object of.
type Target struct {
	schema.GroupKind
	// Beside and Is: the field beside it that must have a value for the target to be meant; "" when it always is.
	Beside, Is string
}

const each = "[]"

var (
	title  = regexp.MustCompile(`^(names|keeps|needs|depends on) (.+)$`)
	target = regexp.MustCompile(`^([A-Z][A-Za-z0-9]*)\.([a-z0-9.-]+)(?: when ([A-Za-z0-9]+) is (\S+))?$`)
)

// Of reads the schema of a kind, nil for one that says nothing.
func Of(root *apiextensionsv1.JSONSchemaProps) Kind {
	var k Kind
	if root == nil {
		return k
	}
	spec, status := root.Properties["spec"], root.Properties["status"]
	_, k.DependsOn = spec.Properties["dependsOn"]
	_, k.Reports = status.Properties["dependencies"]
	_, k.Dependents = status.Properties["dependents"]
	k.walk(&spec, []string{"spec"})
	slices.SortFunc(k.References, func(a, b Reference) int { return slices.Compare(a.Path, b.Path) })
	return k
}

func (k *Kind) walk(s *apiextensionsv1.JSONSchemaProps, path []string) {
	items := s.Items != nil && s.Items.Schema != nil
	if r, ok := read(s.Title); ok {
		r.Path = slices.Clone(path)
		if items {
			r.Path = append(r.Path, each)
		}
		k.References = append(k.References, r)
	}
	for name, property := range s.Properties {
		k.walk(&property, append(slices.Clone(path), name))
	}
	if items {
		k.walk(s.Items.Schema, append(slices.Clone(path), each))
	}
}

// read reads a title; ok is false when it is any other.
func read(text string) (r Reference, ok bool) {
	m := title.FindStringSubmatch(text)
	if m == nil {
		return r, false
	}
	switch m[1] {
	case "keeps":
		r.Strength = graph.Keeps
	case "needs":
		r.Strength = graph.Needs
	case "depends on":
		r.Strength, r.Guarded = graph.Needs, true
	}
	for part := range strings.SplitSeq(m[2], ", ") {
		t := target.FindStringSubmatch(part)
		if t == nil {
			return r, false
		}
		r.Targets = append(r.Targets, Target{schema.GroupKind{Group: t[2], Kind: t[1]}, t[3], t[4]})
	}
	return r, true
}

// Edges are what an object's fields name; spec.dependsOn is not among them.
func (k Kind) Edges(namespace string, object map[string]any) []graph.Edge {
	var edges []graph.Edge
	for _, r := range k.References {
		r.find(object, nil, r.Path, "", func(field string, beside map[string]any, name string) {
			for _, t := range r.Targets {
				if t.Beside == "" || beside[t.Beside] == t.Is {
					to := graph.Key{GroupKind: t.GroupKind, Namespace: namespace, Name: name}
					edges = append(edges, graph.Edge{To: to, Strength: r.Strength, Field: field, Guarded: r.Guarded})
				}
			}
		})
	}
	return edges
}

// find calls found with each name that is at the path below the value.
func (r Reference) find(value any, beside map[string]any, path []string, field string, found func(field string, beside map[string]any, name string)) {
	if len(path) == 0 {
		if name, ok := value.(string); ok && name != "" {
			found(field, beside, name)
		}
		return
	}
	if path[0] == each {
		list, _ := value.([]any)
		for i, item := range list {
			r.find(item, beside, path[1:], fmt.Sprintf("%s[%d]", field, i), found)
		}
		return
	}
	if content, ok := value.(map[string]any); ok {
		r.find(content[path[0]], content, path[1:], strings.TrimPrefix(field+"."+path[0], "."), found)
	}
}
