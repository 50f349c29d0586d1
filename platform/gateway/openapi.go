package gateway

import (
	"crypto/sha256"
	_ "embed" // for the description below
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// ownDocument is the name of the document of what is no kind's: coming in, many documents at once, the audit trail.
const ownDocument = "mni"

//go:embed description.yaml
var ownDescription []byte

// openAPIIndex lists the documents of OpenAPI v3, one for each group and version, and that of what is no kind's.
type openAPIIndex struct {
	Paths map[string]openAPIPath `json:"paths"`
}

type openAPIPath struct {
	ServerRelativeURL string `json:"serverRelativeURL"`
}

// objectMeta is the schema of objects' metadata in the API server's documents.
const objectMeta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"

// openAPI answers with the documents that the API server makes from the definitions of kinds: of the cloud's groups only, and also
// for the short forms of them.
func (g *Gateway) openAPI(w http.ResponseWriter, r *http.Request, id *Identity, c *catalog, parts []string) {
	seen := c.seenBy(id)
	if len(parts) == 0 {
		index, err := g.openAPIIndex(r, seen)
		if err != nil {
			g.noOpenAPI(w, r, err)
			return
		}
		writeJSON(w, typeJSON, index)
		return
	}
	if len(parts) == 1 && parts[0] == ownDocument {
		text, err := yaml.YAMLToJSON(ownDescription)
		if err != nil {
			g.noOpenAPI(w, r, err)
			return
		}
		w.Header().Set("Content-Type", typeJSON)
		_, _ = w.Write(text)
		return
	}
	if len(parts) != 3 || parts[0] != "apis" {
		refuse(w, r, notFound("OpenAPI documents are under /openapi/v3/apis/GROUP/VERSION, and /openapi/v3/%s is of what is no kind's", ownDocument))
		return
	}
	as := schema.GroupVersion{Group: parts[1], Version: parts[2]}
	var kinds []*served
	if group := seen.group(as.Group); group != nil && as.Group != "" {
		if v := group.version(as.Version); v != nil {
			kinds = v.kinds
		}
	}
	if len(kinds) == 0 {
		refuse(w, r, notFound("there is no API group %q with version %q", as.Group, as.Version))
		return
	}
	document, err := g.openAPIDocument(r, kinds)
	if err != nil {
		g.noOpenAPI(w, r, err)
		return
	}
	writeJSON(w, typeJSON, document)
}

func (g *Gateway) noOpenAPI(w http.ResponseWriter, r *http.Request, err error) {
	g.config.Log.Error("the API server's OpenAPI was not read", "error", err)
	refuse(w, r, unavailable("the description of the API could not be read; try again"))
}

// own reads something of the API server that is nobody's, with the gateway's own rights.
func (g *Gateway) own(r *http.Request, path string, query url.Values, into any) error {
	request, err := g.upstream.request(r.Context(), nil, http.MethodGet, path, query, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", typeJSON)
	answer, err := g.upstream.do(request)
	if err != nil {
		return err
	}
	if answer.code != http.StatusOK {
		return fmt.Errorf("GET %s: the API server answered %d", path, answer.code)
	}
	return json.Unmarshal(answer.body, into)
}

func (g *Gateway) openAPIIndex(r *http.Request, seen *catalog) (*openAPIIndex, error) {
	var all openAPIIndex
	if err := g.own(r, "/openapi/v3", nil, &all); err != nil {
		return nil, err
	}
	index := &openAPIIndex{Paths: map[string]openAPIPath{
		ownDocument: {ServerRelativeURL: fmt.Sprintf("/openapi/v3/%s?hash=%X", ownDocument, sha256.Sum256(ownDescription))},
	}}
	for _, group := range seen.groups {
		for _, v := range group.versions {
			if group.name == "" {
				continue
			}
			found, ok := all.Paths["apis/"+v.kinds[0].GroupVersion().String()]
			if !ok {
				continue // the API server is about to have it
			}
			_, hash, _ := strings.Cut(found.ServerRelativeURL, "?")
			path := "apis/" + group.name + "/" + v.name
			index.Paths[path] = openAPIPath{ServerRelativeURL: "/openapi/v3/" + path + "?" + hash}
		}
	}
	return index, nil
}

func (g *Gateway) openAPIDocument(r *http.Request, kinds []*served) (map[string]any, error) {
	gv, as := kinds[0].GroupVersion(), kinds[0].as
	var document map[string]any
	if err := g.own(r, "/openapi/v3/apis/"+gv.String(), nil, &document); err != nil {
		return nil, err
	}
	paths, ok := document["paths"].(map[string]any)
	if !ok {
		return nil, errors.New("the document has no paths")
	}
	from, to := "/apis/"+gv.String()+"/", "/apis/"+as.String()+"/"
	shown := map[string]any{}
	for path, item := range paths {
		if rest, ok := strings.CutPrefix(path, from); ok && ofKinds(rest, kinds) {
			shown[to+rest] = item
		}
	}
	document["paths"] = shown
	addShortFields(document)
	if as != gv {
		rename(document, gv, as)
	}
	return document, nil
}

// ofKinds tells whether a path below GROUP/VERSION/ is one of the kinds'.
func ofKinds(path string, kinds []*served) bool {
	path = strings.TrimPrefix(path, "namespaces/{namespace}/")
	plural, _, _ := strings.Cut(path, "/")
	for _, s := range kinds {
		if s.plural == plural {
			return true
		}
	}
	return false
}

// addShortFields describes metadata.displayName and .description, which both forms take.
func addShortFields(document map[string]any) {
	field := any(document)
	for _, name := range []string{"components", "schemas", objectMeta, "properties"} {
		object, ok := field.(map[string]any)
		if !ok {
			return
		}
		field = object[name]
	}
	if properties, ok := field.(map[string]any); ok {
		for _, f := range shortFields {
			properties[f.field] = map[string]any{
				"type": "string", "description": "For people, any text. Kept as the annotation " + f.annotation + ".",
			}
		}
	}
}

// rename puts one group and version in place of another wherever a document says which kind a schema or operation is about.
func rename(value any, from, to schema.GroupVersion) {
	switch v := value.(type) {
	case map[string]any:
		if v["group"] == from.Group && v["version"] == from.Version && v["kind"] != nil {
			v["group"], v["version"] = to.Group, to.Version
		}
		for _, field := range v {
			rename(field, from, to)
		}
	case []any:
		for _, item := range v {
			rename(item, from, to)
		}
	}
}

// version answers which Kubernetes this is.
func (g *Gateway) version(w http.ResponseWriter, r *http.Request) {
	var version map[string]any
	if err := g.own(r, "/version", nil, &version); err != nil {
		g.noOpenAPI(w, r, err)
		return
	}
	writeJSON(w, typeJSON, version)
}
