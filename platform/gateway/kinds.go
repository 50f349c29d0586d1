package gateway

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

const (
	// groupSuffix ends the name of every API group of the cloud. The short form of a group is what stands before it.
	groupSuffix = ".mnicloud.jp"

	groupAuth = "auth" + groupSuffix
)

// verbs of Kubernetes' API.
const (
	verbGet              = "get"
	verbList             = "list"
	verbWatch            = "watch"
	verbCreate           = "create"
	verbUpdate           = "update"
	verbPatch            = "patch"
	verbDelete           = "delete"
	verbDeleteCollection = "deletecollection"
	// verbApply is how the audit trail calls a patch that is a server-side apply.
	verbApply = "apply"
)

var (
	readVerbs = []string{verbGet, verbList, verbWatch}
	allVerbs  = []string{verbCreate, verbDelete, verbDeleteCollection, verbGet, verbList, verbPatch, verbUpdate, verbWatch}
)

// kind is a kind of objects in one version, as the API server serves it.
type kind struct {
	schema.GroupVersionKind
	plural, singular, listKind string
	shortNames, categories     []string
	namespaced                 bool
	verbs                      []string
	subresources               map[string]subresource
}

// subresource of a kind.
type subresource struct {
	verbs []string
	schema.GroupVersionKind
	// stream: what it carries is not objects.
	stream bool
}

// served is a kind under the group and version by which clients know it.
type served struct {
	*kind
	// group and version in the path: the kind's own, or their short form.
	as schema.GroupVersion
}

// short tells whether clients know the kind by the short form here.
func (s *served) short() bool { return s.as != s.GroupVersion() }

// ownOnly tells whether users see only their own objects of this cluster-scoped kind.
func (s *served) ownOnly() bool {
	return s.Group == groupAuth && !s.namespaced && (s.plural == "users" || s.plural == "tenants")
}

// catalog is all that is served at one time. It does not change; a new one takes its place.
type catalog struct {
	groups []*group
	kinds  map[schema.GroupVersionResource]*served
}

// group of the catalog with its versions, the preferred one first.
type group struct {
	name     string
	versions []*groupVersion
}

type groupVersion struct {
	name  string
	kinds []*served
}

func (c *catalog) find(gv schema.GroupVersion, plural string) *served {
	return c.kinds[gv.WithResource(plural)]
}

func (c *catalog) group(name string) *group {
	i := slices.IndexFunc(c.groups, func(g *group) bool { return g.name == name })
	if i < 0 {
		return nil
	}
	return c.groups[i]
}

func (g *group) version(name string) *groupVersion {
	i := slices.IndexFunc(g.versions, func(v *groupVersion) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return g.versions[i]
}

// coreKinds are what is served of Kubernetes' own: workloads and what happened to them, to look at.
func coreKinds() []*kind {
	v1 := schema.GroupVersion{Version: "v1"}
	stream := func(kind string, verbs ...string) subresource {
		return subresource{verbs: verbs, GroupVersionKind: v1.WithKind(kind), stream: true}
	}
	return []*kind{
		{
			GroupVersionKind: v1.WithKind("Pod"), plural: "pods", singular: "pod", listKind: "PodList", shortNames: []string{"po"},
			namespaced: true, verbs: readVerbs,
			subresources: map[string]subresource{
				"log":         stream("Pod", verbGet),
				"exec":        stream("PodExecOptions", verbCreate, verbGet),
				"attach":      stream("PodAttachOptions", verbCreate, verbGet),
				"portforward": stream("PodPortForwardOptions", verbCreate, verbGet),
			},
		},
		{
			GroupVersionKind: v1.WithKind("Event"), plural: "events", singular: "event", listKind: "EventList", shortNames: []string{"ev"},
			namespaced: true, verbs: readVerbs,
		},
	}
}

// newCatalog makes the catalog of the definitions.
func newCatalog(definitions []*apiextensionsv1.CustomResourceDefinition) *catalog {
	c := &catalog{kinds: map[schema.GroupVersionResource]*served{}}
	for _, k := range coreKinds() {
		c.add(k, k.GroupVersion())
	}
	for _, crd := range definitions {
		for _, k := range kindsOf(crd) {
			c.add(k, k.GroupVersion())
			short := schema.GroupVersion{Group: strings.TrimSuffix(k.Group, groupSuffix), Version: k.Version}
			c.add(k, short)
			short.Version = unnumbered(k.Version)
			// v1alpha is the newest of v1alpha1, v1alpha2, ...
			if now := c.find(short, k.plural); now == nil || version.CompareKubeAwareVersionStrings(now.Version, k.Version) < 0 {
				c.add(k, short)
			}
		}
	}
	c.sort()
	return c
}

func (c *catalog) add(k *kind, as schema.GroupVersion) {
	s := &served{kind: k, as: as}
	g := c.group(as.Group)
	if g == nil {
		g = &group{name: as.Group}
		c.groups = append(c.groups, g)
	}
	v := g.version(as.Version)
	if v == nil {
		v = &groupVersion{name: as.Version}
		g.versions = append(g.versions, v)
	}
	v.kinds = slices.DeleteFunc(v.kinds, func(old *served) bool { return old.plural == k.plural })
	v.kinds = append(v.kinds, s)
	c.kinds[as.WithResource(k.plural)] = s
}

// sort puts groups' own names before the short forms of them, so that a client takes these only when told to.
func (c *catalog) sort() {
	slices.SortFunc(c.groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(strings.Count(b.name, "."), strings.Count(a.name, ".")), cmp.Compare(a.name, b.name))
	})
	for _, g := range c.groups {
		slices.SortFunc(g.versions, func(a, b *groupVersion) int {
			return -version.CompareKubeAwareVersionStrings(a.name, b.name)
		})
		for _, v := range g.versions {
			slices.SortFunc(v.kinds, func(a, b *served) int { return cmp.Compare(a.plural, b.plural) })
		}
	}
}

var numbered = regexp.MustCompile(`^(v[0-9]+(?:alpha|beta))[0-9]+$`)

// unnumbered is the short form of a version: v1alpha of v1alpha1.
func unnumbered(version string) string {
	if m := numbered.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return version
}

// kindsOf are the kinds that a definition serves: none when it is not the cloud's or not established.
func kindsOf(crd *apiextensionsv1.CustomResourceDefinition) []*kind {
	if !strings.HasSuffix(crd.Spec.Group, groupSuffix) || !established(crd) {
		return nil
	}
	names := crd.Status.AcceptedNames
	var kinds []*kind
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		if !v.Served {
			continue
		}
		gvk := schema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: names.Kind}
		k := &kind{
			GroupVersionKind: gvk, plural: names.Plural, singular: names.Singular, listKind: names.ListKind,
			shortNames: names.ShortNames, categories: names.Categories,
			namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, verbs: allVerbs, subresources: map[string]subresource{},
		}
		if v.Subresources != nil && v.Subresources.Status != nil {
			k.subresources["status"] = subresource{verbs: []string{verbGet, verbPatch, verbUpdate}, GroupVersionKind: gvk}
		}
		if v.Subresources != nil && v.Subresources.Scale != nil {
			scale := schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
			k.subresources["scale"] = subresource{verbs: []string{verbGet, verbPatch, verbUpdate}, GroupVersionKind: scale}
		}
		kinds = append(kinds, k)
	}
	return kinds
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	is := false
	for _, c := range crd.Status.Conditions {
		switch {
		case c.Type == apiextensionsv1.Established:
			is = c.Status == apiextensionsv1.ConditionTrue
		case c.Type == apiextensionsv1.Terminating && c.Status == apiextensionsv1.ConditionTrue:
			return false
		}
	}
	return is
}
