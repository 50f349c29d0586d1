package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// annotationDisplayName and annotationDescription keep what the short form has in metadata.displayName and .description.
	annotationDisplayName = "mnicloud.jp/display-name"
	annotationDescription = "mnicloud.jp/description"
)

// shortFields are the fields of the short form's metadata, by the annotations that keep them.
var shortFields = []struct{ field, annotation string }{
	{"displayName", annotationDisplayName}, {"description", annotationDescription},
}

// inbound turns a request's body into what the API server takes, and its media type.
func (t *target) inbound(body []byte, mediaType string, id *Identity) ([]byte, string, *problem) {
	switch t.verb {
	case verbCreate, verbUpdate:
		if mediaType != typeJSON && mediaType != typeYAML {
			return nil, "", unsupported("Content-Type %q: send %s or %s", mediaType, typeJSON, typeYAML)
		}
	case verbDelete, verbDeleteCollection:
		return t.deleteOptions(body, mediaType, id)
	case verbPatch:
		switch mediaType {
		case typeJSONPatch:
			return t.jsonPatch(body, id)
		case typeApply, typeMergePatch:
		default:
			return nil, "", unsupported("Content-Type %q: patch by %s, %s or %s", mediaType, typeApply, typeMergePatch, typeJSONPatch)
		}
	}
	var object map[string]any
	if err := decode(body, mediaType, &object); err != nil {
		return nil, "", badRequest("", "%s", err)
	}
	if object == nil {
		return nil, "", badRequest("", "the body has no object")
	}
	if p := t.object(object); p != nil {
		return nil, "", p
	}
	t.identify(object["metadata"], "uid", id)
	if mediaType == typeYAML {
		mediaType = typeJSON
	}
	return encode(object, mediaType)
}

func encode(v any, mediaType string) ([]byte, string, *problem) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, "", badRequest("", "%s", err)
	}
	if len(body) > maxBody {
		return nil, "", tooLarge("the object has more than %d bytes", maxBody)
	}
	return body, mediaType, nil
}

// object turns an object, or a part of one for a merge patch, from the client's form into the API server's.
func (t *target) object(o map[string]any) *problem {
	if apiVersion, ok := o["apiVersion"].(string); ok && t.isForm(apiVersion) {
		o["apiVersion"] = t.GroupVersion().String()
	}
	field, ok := o["metadata"]
	if !ok || field == nil {
		return nil
	}
	metadata, ok := field.(map[string]any)
	if !ok {
		return badRequest("metadata", "metadata must be an object")
	}
	switch namespace, ok := metadata["namespace"]; {
	case !ok || namespace == nil || namespace == "":
		delete(metadata, "namespace")
	case t.tenant == "":
		return badRequest("metadata.namespace", "metadata.namespace: %s belong to no tenant; leave it out", t.plural)
	case namespace != t.tenant:
		return badRequest("metadata.namespace", "metadata.namespace must be the tenant that the request is for, %q, or be left out", t.tenant)
	default:
		metadata["namespace"] = t.namespace
	}
	return shortToAnnotations(metadata)
}

// identify puts a Tenant's UID back in a field of a document. It is the name of its namespace too, so the Tenant's name was shown instead.
func (t *target) identify(document any, field string, id *Identity) {
	fields, ok := document.(map[string]any)
	if !ok || !t.ownOnly() || t.plural != "tenants" {
		return
	}
	if name, ok := fields[field].(string); ok {
		fields[field] = id.toNamespaces()(name)
	}
}

// isForm tells whether an apiVersion means the target's: its own, or a short form of it.
func (t *target) isForm(apiVersion string) bool {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return false
	}
	short := strings.TrimSuffix(t.Group, groupSuffix)
	return (gv.Group == t.Group || gv.Group == short) && (gv.Version == t.Version || gv == t.as)
}

// shortToAnnotations moves metadata.displayName and .description to the annotations that keep them. A null, in a patch, stays one.
func shortToAnnotations(metadata map[string]any) *problem {
	for _, f := range shortFields {
		value, ok := metadata[f.field]
		if !ok {
			continue
		}
		if _, isText := value.(string); !isText && value != nil {
			return badRequest("metadata."+f.field, "metadata.%s must be a text", f.field)
		}
		delete(metadata, f.field)
		annotations, ok := metadata["annotations"].(map[string]any)
		if !ok {
			if metadata["annotations"] != nil {
				return badRequest("metadata.annotations", "metadata.annotations must be an object")
			}
			annotations = map[string]any{}
			metadata["annotations"] = annotations
		}
		annotations[f.annotation] = value
	}
	return nil
}

// jsonPatch translates a JSON patch (RFC 6902).
func (t *target) jsonPatch(body []byte, id *Identity) ([]byte, string, *problem) {
	var operations []map[string]any
	if err := decode(body, typeJSONPatch, &operations); err != nil {
		return nil, "", badRequest("", "%s", err)
	}
	for i, o := range operations {
		for _, pointer := range []string{"path", "from"} {
			path, ok := o[pointer].(string)
			if !ok {
				continue
			}
			for _, f := range shortFields {
				if path == "/metadata/"+f.field {
					o[pointer] = "/metadata/annotations/" + strings.ReplaceAll(f.annotation, "/", "~1")
				}
			}
		}
		at := fmt.Sprintf("[%d]", i)
		switch path, value := o["path"], o["value"]; {
		case path == "/metadata/namespace" && value == t.tenant && t.tenant != "":
			o["value"] = t.namespace
		case path == "/metadata/uid":
			t.identify(o, "value", id)
		case path == "/metadata/namespace" && o["op"] != "test":
			return nil, "", badRequest(at, "metadata.namespace cannot be changed: a resource stays with its tenant")
		case path == "" || path == "/" || path == "/metadata" || o["from"] == "" || o["from"] == "/metadata":
			return nil, "", badRequest(at, "a patch of the whole object, or of all its metadata, is not taken: patch the fields that are meant")
		case t.user() && reveals(o):
			return nil, "", badRequest(at, "a patch that compares or copies a User's password is not taken: what is stored of it is shown to nobody")
		}
	}
	return encode(operations, typeJSONPatch)
}

// deleteOptions are the few options of deletion that clients may give.
func (t *target) deleteOptions(body []byte, mediaType string, id *Identity) ([]byte, string, *problem) {
	if len(strings.TrimSpace(string(body))) == 0 {
		return nil, "", nil
	}
	if mediaType != typeJSON && mediaType != typeYAML {
		return nil, "", unsupported("Content-Type %q: send %s or %s", mediaType, typeJSON, typeYAML)
	}
	var options map[string]any
	if err := decode(body, mediaType, &options); err != nil {
		return nil, "", badRequest("", "%s", err)
	}
	known := []string{"kind", "apiVersion", "gracePeriodSeconds", "preconditions", "orphanDependents", "propagationPolicy", "dryRun"}
	for field := range options {
		if !slices.Contains(known, field) {
			return nil, "", badRequest(field, "DeleteOptions have no field %q that is taken here", field)
		}
	}
	if kind, ok := options["kind"]; ok && kind != "DeleteOptions" {
		return nil, "", badRequest("kind", "the body of %s must be DeleteOptions", http.MethodDelete)
	}
	t.identify(options["preconditions"], "uid", id)
	options["kind"], options["apiVersion"] = "DeleteOptions", "meta.k8s.io/v1"
	return encode(options, typeJSON)
}
