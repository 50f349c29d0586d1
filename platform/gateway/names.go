package gateway

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// toNames replaces the namespaces of the caller's tenants by the tenants' names, in any text. A namespace is a UUID that nobody
// can guess and no other UUID equals, so that wherever one stands, in a field, a message, a column or a header, it is meant.
func (id *Identity) toNames() *strings.Replacer {
	pairs := make([]string, 0, 2*len(id.Tenants))
	for tenant, namespace := range id.Tenants {
		if namespace != "" {
			pairs = append(pairs, namespace, tenant)
		}
	}
	return strings.NewReplacer(pairs...)
}

// toNamespaces is the way back. It is for texts whose shape is known only.
func (id *Identity) toNamespaces() func(string) string {
	return func(name string) string {
		if namespace := id.Tenants[name]; namespace != "" {
			return namespace
		}
		return name
	}
}

// token replaces the namespace in the token of a list's next page. Across namespaces such a token holds the key of the next
// object, /NAMESPACE/NAME. A token of another shape stays as it is.
func token(s string, replace func(string) string) string {
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return s
	}
	var page struct {
		APIVersion      string `json:"v"`
		ResourceVersion int64  `json:"rv"`
		Start           string `json:"start"`
	}
	if json.Unmarshal(raw, &page) != nil {
		return s
	}
	key, rooted := strings.CutPrefix(page.Start, "/")
	namespace, name, across := strings.Cut(key, "/")
	if !across {
		return s
	}
	page.Start = replace(namespace) + "/" + name
	if rooted {
		page.Start = "/" + page.Start
	}
	raw, err = json.Marshal(page)
	if err != nil {
		return s
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}
