package gateway_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
)

// attack is one request of the fuzzer.
type attack struct {
	user, verb, sub string
	kind            *attackable
	// tenant whose objects are asked for, by the name that stands in the path.
	tenant, inPath string
	across         bool
	name           string
	trick          string
	// known is a namespace that the request itself has: an error may repeat it.
	known  string
	query  url.Values
	body   string
	header http.Header
}

// what is the kind, verb and subresource, for which there must be a control.
func (a *attack) what() string {
	return strings.TrimSuffix(a.verb+" "+a.kind.gv.String()+" "+a.kind.plural+"/"+a.sub, "/")
}

// documents is what the fuzzer calls it when an object is applied as one of many documents.
const documents = "apply"

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }

// draw draws a request.
func draw(rng *rand.Rand, f *fuzzer) *attack {
	a := &attack{user: pick(rng, []string{"alice", "alice", "bob", "carol", "carol", "ci", "root", ""}), kind: pick(rng, f.kinds), query: url.Values{}, header: http.Header{}}
	verbs := a.kind.verbs
	if subs := slices.Sorted(maps.Keys(a.kind.subresources)); len(subs) > 0 && rng.IntN(3) == 0 {
		a.sub = pick(rng, subs)
		verbs = a.kind.subresources[a.sub]
	}
	a.verb = pick(rng, verbs)
	if a.verb == "watch" && rng.IntN(5) != 0 {
		a.verb = "list"
	}
	a.tenant = pick(rng, []string{"acme", "globex"})
	a.inPath = a.tenant
	a.name = "web"
	if !a.kind.namespaced {
		a.name = pick(rng, []string{"alice", "bob", "acme", "globex", "web"})
	}
	a.across = a.kind.namespaced && (a.verb == "list" || a.verb == "watch") && a.sub == "" && rng.IntN(4) == 0
	a.write(rng, f)
	a.form(rng)
	if rng.IntN(3) == 0 {
		a.deceive(rng, f)
	}
	if a.verb == documents {
		a.body = a.many(rng)
	}
	return a
}

// write gives a request that writes its body. Those that may succeed are dry runs.
func (a *attack) write(rng *rand.Rand, f *fuzzer) {
	object := sample(a.kind, a.tenant)
	if !a.kind.namespaced {
		delete(object["metadata"].(map[string]any), "namespace")
		object["metadata"].(map[string]any)["name"] = a.name
	}
	switch a.verb {
	case "create":
		object["metadata"].(map[string]any)["name"] = "new"
	case "update":
		object["metadata"].(map[string]any)["resourceVersion"] = f.versionOf(a)
	case "patch":
		object = map[string]any{"metadata": map[string]any{"labels": map[string]any{"x": "y"}}}
		a.header.Set("Content-Type", "application/merge-patch+json")
		if rng.IntN(3) == 0 {
			object = sample(a.kind, a.tenant)
			if !a.kind.namespaced {
				delete(object["metadata"].(map[string]any), "namespace")
				object["metadata"].(map[string]any)["name"] = a.name
			}
			a.header.Set("Content-Type", "application/apply-patch+yaml")
			a.query.Set("fieldManager", "fuzzer")
			a.query.Set("force", "true")
		}
	case documents:
		a.query.Set("force", "true")
		a.header.Set("Content-Type", "application/yaml")
	case "watch":
		if rng.IntN(4) != 0 { // from a version on, so that it can go on with the shared watch
			a.query.Set("resourceVersion", *f.fresh.Load())
		}
		return
	case "delete":
		object = nil
	case "deletecollection":
		object = nil
		if rng.IntN(2) == 0 {
			a.query.Set("labelSelector", "of=nobody") // for real, and yet nothing goes
			return
		}
	default:
		return
	}
	if a.sub != "" && a.kind.subresources[a.sub] != nil && a.kind.gv.Group == "" {
		return // a stream
	}
	a.query.Set("dryRun", "All")
	if roleOf(a.user, a.tenant) == "" {
		a.query.Del("dryRun") // it must fail, so it may be meant
	}
	if object != nil {
		body, _ := json.Marshal(object)
		a.body = string(body)
	}
}

// versionOf is the version of the object that the request is about.
func (f *fuzzer) versionOf(a *attack) string {
	group := a.kind.gv.Group
	if a.kind.short {
		group += ".mnicloud.jp"
	}
	namespace := ""
	if a.kind.namespaced {
		namespace = f.namespaces[a.tenant]
	}
	return f.before[group+"/"+a.kind.plural+"/"+namespace+"/"+a.name]
}

// form draws the form of the answer.
func (a *attack) form(rng *rand.Rand) {
	a.header.Set("Accept", pick(rng, []string{
		"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "*/*", "application/problem+json",
	}))
	if a.verb != "watch" && rng.IntN(5) == 0 {
		a.header.Set("Accept", "application/yaml")
	}
	if (a.verb == "get" || a.verb == "list") && rng.IntN(8) == 0 {
		a.header.Set("Accept", "application/json;as=PartialObjectMetadata"+map[string]string{"get": "", "list": "List"}[a.verb]+";v=v1;g=meta.k8s.io")
	}
	if a.verb == "list" && rng.IntN(3) == 0 {
		a.query.Set("limit", "1")
	}
}

// deceive adds a trick: another tenant in a place where only some look.
func (a *attack) deceive(rng *rand.Rand, f *fuzzer) {
	other := map[string]string{"acme": "globex", "globex": "acme"}[a.tenant]
	if roleOf(a.user, other) == "" {
		a.known = f.namespaces[other]
	}
	switch a.trick = pick(rng, []string{"uuid", "other's uuid", "fields", "token", "body", "group", "name", "header"}); a.trick {
	case "uuid":
		a.inPath = f.namespaces[a.tenant]
	case "other's uuid":
		a.inPath = f.namespaces[other]
	case "fields":
		a.query.Set("fieldSelector", "metadata.namespace="+pick(rng, []string{other, f.namespaces[other]}))
	case "token":
		token := fmt.Sprintf(`{"v":"meta.k8s.io/v1","rv":1,"start":"%s/%s/a\u0000"}`, pick(rng, []string{"", "/..", ".."}), pick(rng, []string{other, f.namespaces[other]}))
		a.query.Set("continue", base64.RawURLEncoding.EncodeToString([]byte(token)))
	case "body":
		a.body = strings.ReplaceAll(a.body, `"`+a.tenant+`"`, `"`+pick(rng, []string{other, f.namespaces[other], f.namespaces[a.tenant]})+`"`)
	case "group":
		a.header.Set("Impersonate-User", "mni:user:root")
		a.header.Set("Impersonate-Group", "mni:administrators")
	case "name":
		a.name = pick(rng, []string{"..", "../" + other, "%2e%2e%2f" + f.namespaces[other], "web/../../" + other, "web%2f..%2f" + other})
	case "header":
		a.header.Set("X-Remote-User", "root")
		a.header.Set("X-Remote-Group", "system:masters")
	}
	if a.user == "root" || roleOf(a.user, a.tenant) != "" && a.verb != "get" && a.verb != "list" && a.verb != "watch" && a.verb != "deletecollection" {
		a.query.Set("dryRun", "All")
	}
	if a.verb == documents { // the body alone says where it goes
		a.query.Set("dryRun", "All")
	}
}

// many is the body of a request that applies many documents, of which the attack is the last. Those before it change nothing.
func (a *attack) many(rng *rand.Rand) string {
	object := map[string]any{}
	if json.Unmarshal([]byte(a.body), &object) != nil {
		return a.body
	}
	metadata, _ := object["metadata"].(map[string]any)
	if a.kind.namespaced && a.inPath != a.tenant {
		metadata["namespace"] = a.inPath
	}
	metadata["name"] = a.name
	text, _ := json.Marshal(object)
	return strings.Join(append(pick(rng, [][]string{{}, {"{}"}, {`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}`}, {`{"kind": 1}`, ""}}), string(text)), "\n---\n")
}

// request makes the request.
func (a *attack) request(ctx context.Context) *http.Request {
	path := "/apis/" + a.kind.gv.String()
	if a.kind.gv.Group == "" {
		path = "/api/v1"
	}
	if a.kind.namespaced && !a.across {
		path += "/namespaces/" + a.inPath
	}
	path += "/" + a.kind.plural
	if a.verb != "create" && a.verb != "list" && a.verb != "watch" && a.verb != "deletecollection" || a.sub != "" {
		path += "/" + a.name
	}
	if a.sub != "" {
		path += "/" + a.sub
	}
	if a.verb == "watch" {
		a.query.Set("watch", "true")
		a.query.Del("limit")
	}
	if a.verb == documents {
		path = "/apply"
	}
	method := map[string]string{documents: "POST", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}[a.verb]
	if method == "" {
		method = http.MethodGet
	}
	r := httptest.NewRequestWithContext(ctx, method, path+"?"+a.query.Encode(), strings.NewReader(a.body))
	if a.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(r.Header, a.header)
	if a.user != "" {
		r.Header.Set("Authorization", "Bearer "+a.user)
	}
	if slices.Contains(attachments, a.sub) {
		r.Header.Set("Connection", "Upgrade")
		r.Header.Set("Upgrade", "SPDY/3.1")
	}
	return r
}

// mayInCluster says whether a request for a cluster-scoped kind is allowed.
func (a *attack) mayInCluster() verdict {
	auth := strings.HasPrefix(a.kind.gv.Group, "auth")
	if a.user == "root" {
		user := slices.Contains([]string{"alice", "bob"}, a.name)
		named := a.kind.plural == "users" && user || a.kind.plural == "tenants" && roleOf("root", a.name) != ""
		switch a.verb {
		case "list", "watch", "deletecollection":
			return yes
		case "create":
			if auth {
				return yes
			}
		}
		if auth && named {
			return yes
		}
		return harmless
	}
	own := a.kind.plural == "users" && a.name == a.user || a.kind.plural == "tenants" && roleOf(a.user, a.name) != ""
	switch {
	case auth && a.sub == "" && a.verb == "get" && own, auth && a.sub == "" && a.verb == "list":
		return yes
	}
	return no
}
