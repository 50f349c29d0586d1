package gateway

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// typeDiscovery is the media type of aggregated discovery.
const typeDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discover answers what kinds there are, in the shapes that Kubernetes' clients ask for.
func (c *catalog) discover(w http.ResponseWriter, r *http.Request, id *Identity, parts []string) {
	seen := c.seenBy(id)
	aggregated := strings.Contains(strings.ReplaceAll(strings.Join(r.Header.Values("Accept"), ","), " ", ""), typeDiscovery)
	core := seen.group("")
	switch {
	case len(parts) == 1 && aggregated:
		writeJSON(w, typeDiscovery, seen.aggregated(parts[0] == "api"))
	case len(parts) == 1 && parts[0] == "api":
		writeJSON(w, typeJSON, &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{"v1"}})
	case len(parts) == 2 && parts[0] == "api" && parts[1] == "v1":
		writeJSON(w, typeJSON, core.version("v1").resources(core.name))
	case len(parts) == 1:
		writeJSON(w, typeJSON, seen.groupList())
	case parts[0] == "apis" && len(parts) <= 3:
		g := seen.group(parts[1])
		switch {
		case g == nil || g == core:
			refuse(w, r, notFound("there is no API group %q", parts[1]))
		case len(parts) == 2:
			writeJSON(w, typeJSON, g.api())
		case g.version(parts[2]) == nil:
			refuse(w, r, notFound("API group %q has no version %q", parts[1], parts[2]))
		default:
			writeJSON(w, typeJSON, g.version(parts[2]).resources(g.name))
		}
	default:
		refuse(w, r, notFound("the API is under /api/v1/ and /apis/GROUP/VERSION/"))
	}
}

func writeJSON(w http.ResponseWriter, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(append(body, '\n'))
}

// seenBy is the part of the catalog that an identity is shown: for administrators of the cloud all of it.
func (c *catalog) seenBy(id *Identity) *catalog {
	if id.Administrator {
		return c
	}
	seen := &catalog{}
	for _, g := range c.groups {
		shown := &group{name: g.name}
		for _, v := range g.versions {
			kinds := slices.DeleteFunc(slices.Clone(v.kinds), func(s *served) bool { return !s.namespaced && !s.ownOnly() })
			if len(kinds) > 0 {
				shown.versions = append(shown.versions, &groupVersion{name: v.name, kinds: kinds})
			}
		}
		if len(shown.versions) > 0 {
			seen.groups = append(seen.groups, shown)
		}
	}
	return seen
}

func (c *catalog) groupList() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	for _, g := range c.groups {
		if g.name != "" {
			api := g.api()
			api.TypeMeta = metav1.TypeMeta{}
			list.Groups = append(list.Groups, *api)
		}
	}
	return list
}

func (g *group) api() *metav1.APIGroup {
	api := &metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: g.name}
	for _, v := range g.versions {
		gv := schema.GroupVersion{Group: g.name, Version: v.name}
		api.Versions = append(api.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: v.name})
	}
	api.PreferredVersion = api.Versions[0]
	return api
}

func (v *groupVersion) resources(group string) *metav1.APIResourceList {
	gv := schema.GroupVersion{Group: group, Version: v.name}
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(), APIResources: []metav1.APIResource{}}
	for _, s := range v.kinds {
		r := metav1.APIResource{Name: s.plural, SingularName: s.singular, Namespaced: s.namespaced, Kind: s.Kind, Verbs: s.verbs}
		if !s.short() {
			r.ShortNames, r.Categories = s.shortNames, s.categories
		}
		list.APIResources = append(list.APIResources, r)
		for _, name := range s.subresourceNames() {
			sub := s.subresources[name]
			gvk := s.responseKind(sub.GroupVersionKind)
			r := metav1.APIResource{Name: s.plural + "/" + name, Namespaced: s.namespaced, Kind: gvk.Kind, Verbs: sub.verbs}
			if gvk.GroupVersion() != gv {
				r.Group, r.Version = gvk.Group, gvk.Version
			}
			list.APIResources = append(list.APIResources, r)
		}
	}
	return list
}

// subresourceNames are sorted.
func (s *served) subresourceNames() []string {
	var names []string
	for name := range s.subresources {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// responseKind is a kind of the API server's under the group and version by which clients know it here.
func (s *served) responseKind(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	if gvk.GroupVersion() == s.GroupVersion() {
		return s.as.WithKind(gvk.Kind)
	}
	return gvk
}

func discoveryKind(gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
}

// aggregated is the core group's discovery in one document, or that of all other groups.
func (c *catalog) aggregated(core bool) *apidiscovery.APIGroupDiscoveryList {
	list := &apidiscovery.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}, Items: []apidiscovery.APIGroupDiscovery{},
	}
	for _, g := range c.groups {
		if (g.name == "") != core {
			continue
		}
		item := apidiscovery.APIGroupDiscovery{}
		item.Name = g.name
		for _, v := range g.versions {
			version := apidiscovery.APIVersionDiscovery{Version: v.name, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
			for _, s := range v.kinds {
				version.Resources = append(version.Resources, s.discovery())
			}
			item.Versions = append(item.Versions, version)
		}
		list.Items = append(list.Items, item)
	}
	return list
}

func (s *served) discovery() apidiscovery.APIResourceDiscovery {
	d := apidiscovery.APIResourceDiscovery{
		Resource: s.plural, SingularResource: s.singular, Verbs: s.verbs, Scope: apidiscovery.ScopeCluster,
		ResponseKind: discoveryKind(s.responseKind(s.GroupVersionKind)),
	}
	if s.namespaced {
		d.Scope = apidiscovery.ScopeNamespace
	}
	if !s.short() {
		d.ShortNames, d.Categories = s.shortNames, s.categories
	}
	for _, name := range s.subresourceNames() {
		sub := s.subresources[name]
		d.Subresources = append(d.Subresources, apidiscovery.APISubresourceDiscovery{
			Subresource: name, Verbs: sub.verbs, ResponseKind: discoveryKind(s.responseKind(sub.GroupVersionKind)),
		})
	}
	return d
}
