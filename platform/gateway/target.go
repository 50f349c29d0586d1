package gateway

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// segment is what may stand between two slashes of a path: names of groups, versions, tenants, kinds and objects. There is no
// escaping, no empty segment and no way up.
var segment = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// segments splits a request's path, or says why it will not be followed. It looks at the path as it was sent: what a proxy or a
// library may take for a slash or a dot is no path of the API.
func segments(r *http.Request) ([]string, *problem) {
	sent, _, _ := strings.Cut(r.RequestURI, "?")
	if r.RequestURI != "" && sent != r.URL.Path || r.URL.RawPath != "" || r.URL.Fragment != "" || len(r.URL.Path) > 1024 {
		return nil, badRequest("", "the path has characters that no path of the API has: names are of lower-case letters, digits, '-' and '.'")
	}
	path := strings.TrimPrefix(r.URL.Path, "/")
	if path == "" {
		return nil, nil
	}
	parts := strings.Split(path, "/")
	for _, p := range parts {
		if !segment.MatchString(p) || strings.Contains(p, "..") {
			return nil, badRequest("", "the path has characters that no path of the API has: names are of lower-case letters, digits, '-' and '.', between single slashes")
		}
	}
	return parts, nil
}

// target is what a request is about.
type target struct {
	*served
	verb string
	// tenant is the tenant's name, namespace its namespace. Both are empty for cluster-scoped kinds and across tenants.
	tenant, namespace string
	name              string
	subresource       string
}

// stream tells whether the target carries bytes of a workload, not objects.
func (t *target) stream() bool {
	return t.subresource != "" && t.subresources[t.subresource].stream
}

// across tells whether the target is a namespaced kind in all the tenants that the caller can name.
func (t *target) across() bool { return t.namespaced && t.tenant == "" }

// path is the target's path at the API server.
func (t *target) path() string { return t.pathIn(t.namespace) }

func (t *target) pathIn(namespace string) string {
	parts := []string{"", "apis", t.Group, t.Version}
	if t.Group == "" {
		parts = []string{"", "api", t.Version}
	}
	if namespace != "" {
		parts = append(parts, "namespaces", namespace)
	}
	parts = append(parts, t.plural)
	if t.name != "" {
		parts = append(parts, t.name)
	}
	if t.subresource != "" {
		parts = append(parts, t.subresource)
	}
	return strings.Join(parts, "/")
}

// resource is the group and plural with the subresource, as Kubernetes' messages name them.
func (t *target) resource() string {
	name := t.plural
	if t.subresource != "" {
		name += "/" + t.subresource
	}
	return schema.GroupResource{Group: t.Group, Resource: name}.String()
}

// findTarget finds what a path under /api/v1/ or /apis/GROUP/VERSION/ is about. rest is what follows these.
func findTarget(c *catalog, id *Identity, gv schema.GroupVersion, rest []string, method string, watch bool) (*target, *problem) {
	t := &target{}
	if rest[0] == "namespaces" {
		if len(rest) == 2 {
			// Kubernetes' clients ask for the namespace of what was not found, and tell of that alone when it is not found either.
			return nil, forbidden("namespaces are not shown: a tenant's resources are under namespaces/TENANT/")
		}
		if len(rest) < 3 {
			return nil, notFound("namespaces are not shown: a tenant's resources are under namespaces/TENANT/")
		}
		t.tenant, rest = rest[1], rest[2:]
	}
	t.served = c.find(gv, rest[0])
	if t.served == nil || len(rest) > 3 || t.tenant != "" && !t.namespaced {
		return nil, notFound("the server has no such resource: `kubectl api-resources` lists what there is")
	}
	if len(rest) > 1 {
		t.name = rest[1]
	}
	if len(rest) > 2 {
		t.subresource = rest[2]
	}
	if p := t.setVerb(method, watch); p != nil {
		return nil, p
	}
	if t.tenant != "" {
		namespace, ok := id.Tenants[t.tenant]
		if !ok {
			return nil, forbidden("%s: you are not a member of a tenant of that name", t.resource())
		}
		if namespace == "" {
			return nil, unavailable("tenant %q is being made; try again", t.tenant)
		}
		t.namespace = namespace
	}
	if t.across() && (t.name != "" || t.verb != verbList && t.verb != verbWatch) {
		return nil, badRequest("metadata.namespace", "%s belong to a tenant: give its name as the namespace", t.plural)
	}
	return t, nil
}

func (t *target) setVerb(method string, watch bool) *problem {
	verbs := t.verbs
	if t.subresource != "" {
		s, ok := t.subresources[t.subresource]
		if !ok {
			return notFound("%s have no subresource %q", t.plural, t.subresource)
		}
		verbs = s.verbs
	}
	t.verb = verbOf(method, t.name != "", watch)
	if t.stream() && method == http.MethodPost {
		t.verb = verbCreate
	}
	if t.verb == "" || !slices.Contains(verbs, t.verb) {
		return methodNotAllowed("%s cannot be asked to %s this way", t.resource(), method)
	}
	return nil
}

// verbOf is the API's verb of a request, empty if there is none.
func verbOf(method string, named, watch bool) string {
	switch {
	case method == http.MethodGet && named:
		return verbGet
	case method == http.MethodGet && watch:
		return verbWatch
	case method == http.MethodGet:
		return verbList
	case method == http.MethodPost && !named:
		return verbCreate
	case method == http.MethodPut && named:
		return verbUpdate
	case method == http.MethodPatch && named:
		return verbPatch
	case method == http.MethodDelete && named:
		return verbDelete
	case method == http.MethodDelete:
		return verbDeleteCollection
	}
	return ""
}
