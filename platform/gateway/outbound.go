package gateway

import (
	"encoding/json"
	"regexp"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// outbound turns the API server's answers to one request into the caller's.
type outbound struct {
	target *target
	names  *strings.Replacer
	// name gives the tenant's name of one namespace.
	name func(string) string
}

func newOutbound(t *target, id *Identity) *outbound {
	byNamespace := make(map[string]string, len(id.Tenants))
	for tenant, namespace := range id.Tenants {
		byNamespace[namespace] = tenant
	}
	return &outbound{target: t, names: id.toNames(), name: func(namespace string) string {
		if tenant, ok := byNamespace[namespace]; ok {
			return tenant
		}
		return namespace
	}}
}

// document turns one JSON document: an object, a list, a table or a Status. It returns the document and what it holds.
func (o *outbound) document(body []byte) (map[string]any, error) {
	var document map[string]any
	if err := utiljson.Unmarshal(body, &document); err != nil {
		return nil, err
	}
	o.turn(document)
	return document, nil
}

// encode writes a document with names in place of namespaces, wherever these stand.
func (o *outbound) encode(document any) ([]byte, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return []byte(o.names.Replace(string(body))), nil
}

func (o *outbound) turn(document map[string]any) {
	if metadata, ok := document["metadata"].(map[string]any); ok {
		if next, ok := metadata["continue"].(string); ok && next != "" {
			metadata["continue"] = token(next, o.name)
		}
	}
	o.shorten(document)
	switch {
	case document["kind"] == "Table":
		for _, row := range list(document["rows"]) {
			if object, ok := row["object"].(map[string]any); ok {
				o.object(object)
				o.cells(row, object)
			}
		}
	case document["items"] != nil:
		for _, item := range list(document["items"]) {
			o.object(item)
		}
	case document["kind"] != "Status":
		o.object(document)
	}
}

func list(field any) []map[string]any {
	values, _ := field.([]any)
	objects := make([]map[string]any, 0, len(values))
	for _, v := range values {
		if object, ok := v.(map[string]any); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// object turns one object: without the server's book-keeping, in the form that the client asked by.
func (o *outbound) object(object map[string]any) {
	o.shorten(object)
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return
	}
	delete(metadata, "managedFields")
	if o.target.user() {
		hidePassword(object)
	}
	if o.target.ownOnly() && o.target.plural == "tenants" {
		o.tenant(object, metadata)
	}
	if !o.target.short() {
		return
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	if !ok {
		return
	}
	for _, f := range shortFields {
		if value, ok := annotations[f.annotation]; ok {
			metadata[f.field] = value
			delete(annotations, f.annotation)
		}
	}
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}

// shorten gives a document of the target's group the apiVersion that the client asked by.
func (o *outbound) shorten(document map[string]any) {
	if o.target.short() && document["apiVersion"] == o.target.GroupVersion().String() {
		document["apiVersion"] = o.target.as.String()
	}
}

// tenant hides a Tenant's namespace, also of one that became the caller's only now.
func (o *outbound) tenant(object, metadata map[string]any) {
	status, ok := object["status"].(map[string]any)
	if !ok {
		return
	}
	namespace, ok := status["namespace"].(string)
	if !ok || namespace == "" {
		return
	}
	name, _ := metadata["name"].(string)
	hide(object, strings.NewReplacer(namespace, name))
}

var uuid = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// cells hides the namespace in a Tenant's row: the row's object does not say which one it is.
func (o *outbound) cells(row, object map[string]any) {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	cells, _ := row["cells"].([]any)
	if !o.target.ownOnly() || o.target.plural != "tenants" {
		return
	}
	for i, cell := range cells {
		if text, ok := cell.(string); ok {
			cells[i] = uuid.ReplaceAllLiteralString(text, name)
		}
	}
}

// hide replaces text in all strings of a value.
func hide(value any, names *strings.Replacer) any {
	switch v := value.(type) {
	case string:
		return names.Replace(v)
	case map[string]any:
		for key, field := range v {
			v[key] = hide(field, names)
		}
	case []any:
		for i := range v {
			v[i] = hide(v[i], names)
		}
	}
	return value
}
