package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// applyPath is where many documents are applied by one request.
	applyPath = "apply"
	// maxDocuments is how many it may have.
	maxDocuments = 200
	// usualFieldManager is who has set the fields when the request does not say.
	usualFieldManager = "mni-gateway"
)

// appliedDocument is what became of one document.
type appliedDocument struct {
	// Document counts from 1; documents without content are counted, and not answered.
	Document   int    `json:"document"`
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	// Result is created, applied or refused.
	Result string `json:"result"`
	// Code is the HTTP status that the document had by itself.
	Code int `json:"code"`
	// Error is why it was refused.
	Error json.RawMessage `json:"error,omitempty"`
}

// appliedDocuments answers a request to apply many documents.
type appliedDocuments struct {
	Documents []*appliedDocument `json:"documents"`
	Refused   int                `json:"refused"`
}

// applyDocuments applies the documents of a body one after the other, as each would be by a request of its own (server-side apply): what
// one may not do does not keep the others from it. A body that cannot be read changes nothing. The answer is 200 when all were applied, else 207.
func (g *Gateway) applyDocuments(w http.ResponseWriter, r *http.Request, id *Identity, c *catalog) {
	values, p := parseQuery(r)
	if p != nil {
		refuse(w, r, p)
		return
	}
	tenant := values.Get("namespace")
	values.Del("namespace")
	if values.Get("fieldManager") == "" {
		values.Set("fieldManager", usualFieldManager)
	}
	mediaType, p := contentType(r)
	if p == nil && mediaType != typeJSON && mediaType != typeYAML && mediaType != typeApply {
		p = unsupported("Content-Type %q: send %s or %s", mediaType, typeYAML, typeJSON)
	}
	var body []byte
	if p == nil {
		body, p = readBody(w, r)
	}
	var documents []map[string]any
	if p == nil {
		documents, p = readDocuments(body)
	}
	if p != nil {
		refuse(w, r, p)
		return
	}
	answer := appliedDocuments{Documents: []*appliedDocument{}}
	for i, object := range documents {
		if object == nil {
			continue
		}
		if r.Context().Err() != nil {
			return
		}
		d := &applying{Gateway: g, r: r, id: id, kinds: c, query: values, tenant: tenant, object: object}
		done := d.apply(i + 1) //nolint:contextcheck // the request has its context
		if done.Result == "refused" {
			answer.Refused++
		}
		answer.Documents = append(answer.Documents, done)
	}
	code := http.StatusOK
	if answer.Refused > 0 {
		code = http.StatusMultiStatus
	}
	text, err := json.Marshal(answer)
	if err != nil {
		refuse(w, r, unavailable("the answer could not be written: %s", err))
		return
	}
	w.Header().Set("Content-Type", typeJSON)
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n'))
}

// readDocuments reads a body's documents; nil are those without content.
func readDocuments(body []byte) ([]map[string]any, *problem) {
	var documents []map[string]any
	decoder := yaml.NewDecoder(bytes.NewReader(body))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		at := len(documents) + 1
		if err != nil {
			return nil, badRequest("", "document %d is not YAML: %s; nothing was applied", at, err)
		}
		if at > maxDocuments {
			return nil, tooLarge("the body has more than %d documents; nothing was applied", maxDocuments)
		}
		if _, err := weigh(&node, map[*yaml.Node]int{}, 0); err != nil {
			return nil, badRequest("", "document %d: %s; nothing was applied", at, err)
		}
		text, err := yaml.Marshal(&node)
		if err != nil {
			return nil, badRequest("", "document %d: %s; nothing was applied", at, err)
		}
		var object map[string]any
		if err := decode(text, typeYAML, &object); err != nil {
			return nil, badRequest("", "document %d: %s; nothing was applied", at, err)
		}
		documents = append(documents, object)
	}
	if len(documents) == 0 {
		return nil, badRequest("", "the body has no documents")
	}
	return documents, nil
}

// applying is one document on its way.
type applying struct {
	*Gateway
	r     *http.Request
	id    *Identity
	kinds *catalog
	query url.Values
	// tenant is worked in by documents that name none.
	tenant string
	object map[string]any
}

// apply applies the document by a request of its own.
func (a *applying) apply(number int) *appliedDocument {
	done := &appliedDocument{Document: number, Result: "refused"}
	request, p := a.request(done)
	if p == nil {
		var release func()
		if release, p = a.limiter.enter(a.id.User); p == nil {
			defer release()
		}
	}
	answer := &kept{header: http.Header{}, code: http.StatusOK}
	if p != nil {
		refuse(answer, a.form(), p)
	} else {
		a.route(answer, request, a.id)
	}
	done.Code = answer.code
	switch answer.code {
	case http.StatusCreated:
		done.Result = "created"
	case http.StatusOK:
		done.Result = "applied"
	default:
		done.Error = bytes.TrimSpace(answer.body.Bytes())
	}
	return done
}

// form is a request that takes what the client takes for errors: Kubernetes' or problems.
func (a *applying) form() *http.Request {
	form := a.r.Clone(a.r.Context())
	form.Header = maps.Clone(a.r.Header)
	form.Header.Set("Accept", typeJSON)
	if plain(a.r) {
		form.Header.Set("Accept", "application/problem+json")
	}
	return form
}

// request is the document's own, and notes what it is about.
func (a *applying) request(done *appliedDocument) (*http.Request, *problem) {
	metadata, _ := a.object["metadata"].(map[string]any)
	text := func(from map[string]any, field string) string { s, _ := from[field].(string); return s }
	done.APIVersion, done.Kind = text(a.object, "apiVersion"), text(a.object, "kind")
	done.Namespace, done.Name = text(metadata, "namespace"), text(metadata, "name")
	for _, field := range []struct{ name, value string }{{"apiVersion", done.APIVersion}, {"kind", done.Kind}, {"metadata.name", done.Name}} {
		if field.value == "" {
			return nil, badRequest(field.name, "%s is missing", field.name)
		}
	}
	gv, err := schema.ParseGroupVersion(done.APIVersion)
	if err != nil {
		return nil, badRequest("apiVersion", "apiVersion: %s", err)
	}
	k := a.kinds.named(gv, done.Kind)
	if k == nil {
		return nil, notFound("there is no kind %s in %s: `mni api-resources` lists what there is", done.Kind, done.APIVersion)
	}
	parts := []string{"", "apis", k.as.Group, k.as.Version}
	if k.as.Group == "" {
		parts = []string{"", "api", k.as.Version}
	}
	if k.namespaced {
		if done.Namespace == "" {
			done.Namespace = a.tenant
		}
		if done.Namespace == "" {
			return nil, badRequest("metadata.namespace", "%s belong to a tenant: give its name as the namespace, here or as the query parameter namespace", k.plural)
		}
		parts = append(parts, "namespaces", done.Namespace)
	}
	parts = append(parts, k.plural, done.Name)
	for _, part := range parts[1:] {
		if !segment.MatchString(part) || strings.Contains(part, "..") {
			return nil, badRequest("metadata.name", "metadata.name and metadata.namespace must be of lower-case letters, digits, '-' and '.'")
		}
	}
	body, err := json.Marshal(a.object)
	if err != nil {
		return nil, badRequest("", "%s", err)
	}
	request := a.form()
	request.Method, request.RequestURI = http.MethodPatch, ""
	request.URL = &url.URL{Path: strings.Join(parts, "/"), RawQuery: a.query.Encode()}
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	request.Header.Set("Content-Type", typeApply)
	return request, nil
}

// named is the kind of a name that is served under a group and version, whole or short.
func (c *catalog) named(gv schema.GroupVersion, name string) *served {
	g := c.group(gv.Group)
	if g == nil {
		return nil
	}
	v := g.version(gv.Version)
	if v == nil {
		return nil
	}
	for _, k := range v.kinds {
		if k.Kind == name {
			return k
		}
	}
	return nil
}

// kept keeps the answer to one document.
type kept struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *kept) WriteHeader(code int) { k.code = code }

// Write implements http.ResponseWriter.
func (k *kept) Write(text []byte) (int, error) {
	if k.body.Len()+len(text) > maxAnswer {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return k.body.Write(text)
}
