package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// described is a gateway with what it says of itself.
type described struct {
	*world
	document *openapi3.T
}

// ask sends a request of a path as the description writes it, and checks that what is sent and answered is as described.
func (d *described) ask(method, path, query, token, body string, want int) map[string]any {
	d.t.Helper()
	template := path
	if strings.HasPrefix(path, "/tokens/") {
		template = "/tokens/{id}"
	}
	item := d.document.Paths.Find(template)
	require.NotNil(d.t, item, "%s is not described", template)
	operation := item.GetOperation(method)
	require.NotNil(d.t, operation, "%s %s is not described", method, template)
	if body != "" && want < 400 {
		var sent any
		require.NoError(d.t, json.Unmarshal([]byte(body), &sent))
		require.NoError(d.t, operation.RequestBody.Value.Content.Get("application/json").Schema.Value.VisitJSON(sent), "what %s takes", path)
	}
	code, text := d.send(method, path+query, token, body)
	require.Equal(d.t, want, code, "%s %s: %s", method, path, text)
	response := operation.Responses.Value(strconv.Itoa(code))
	mediaType := "application/json"
	if response == nil {
		response, mediaType = operation.Responses.Default(), "application/problem+json"
	}
	if len(response.Value.Content) == 0 {
		require.Empty(d.t, text)
		return nil
	}
	var answer map[string]any
	require.NoError(d.t, json.Unmarshal([]byte(text), &answer))
	require.NoError(d.t, response.Value.Content.Get(mediaType).Schema.Value.VisitJSON(answer), "%s %s answers %s", method, path, text)
	return answer
}

func TestComingInAndTheAuditTrailAreAsDescribed(t *testing.T) {
	w := newWorld(t)
	w.mayAudit(w.tenant("described", "ada", authv1.RoleOwner, readAndWrite...))
	access := w.login("ada", right).Access
	var text string
	w.eventually("the description is served, and listed", func() bool {
		_, index := w.send(http.MethodGet, "/openapi/v3", access, "")
		code, body := w.send(http.MethodGet, "/openapi/v3/mni", access, "")
		text = body
		return code == 200 && strings.Contains(index, `"mni":{"serverRelativeURL":"/openapi/v3/mni?hash=`)
	})
	document, err := openapi3.NewLoader().LoadFromData([]byte(text))
	require.NoError(t, err)
	for path := range entrances(&users{}, nil, slog.Default()) {
		if path == "/tokens/" {
			path += "{id}"
		}
		require.NotNil(t, document.Paths.Find(path), "%s is not described", path)
	}
	d := &described{w, document}
	d.ask(http.MethodPost, "/login", "", "", `{"name":"ada","password":"wrong"}`, 401)
	session := d.ask(http.MethodPost, "/login", "", "", `{"name":"ada","password":"`+right+`"}`, 200)
	session = d.ask(http.MethodPost, "/refresh", "", "", `{"refresh":"`+session["refresh"].(string)+`"}`, 200)
	access = session["access"].(string)
	d.ask(http.MethodGet, "/whoami", "", access, "", 200)
	w.eventually("ada works in the tenant", func() bool {
		code, _ := w.send(http.MethodGet, vpcsOf("described"), access, "")
		return code == 200
	})
	token := d.ask(http.MethodPost, "/tokens", "", access, `{"name":"t","tenant":"described","role":"viewer","expirationSeconds":600}`, 200)
	d.ask(http.MethodGet, "/whoami", "", token["token"].(string), "", 200)
	d.ask(http.MethodGet, "/tokens", "", access, "", 200)
	d.ask(http.MethodGet, "/tokens", "?serviceAccount=x", access, "", 400)
	applied := d.ask(http.MethodPost, "/apply", "?namespace=described", access, strings.Replace(aVpc, "NAME", "web", 1), 200)
	require.Equal(t, "created", applied["documents"].([]any)[0].(map[string]any)["result"])
	d.ask(http.MethodPost, "/apply", "?namespace=described", access, strings.NewReplacer("NAME", "wrong", "10.0.0.0/16", "none").Replace(aVpc), 207)
	d.ask(http.MethodDelete, "/tokens/"+token["id"].(string), "", access, "", 204)
	d.ask(http.MethodDelete, "/tokens/none", "", access, "", 404)
	w.eventually("all is told", func() bool {
		_, text := w.send(http.MethodGet, "/audit?tenant=described", access, "") // or too many requests
		return strings.Count(text, `"verb"`) >= 4
	})
	var page string
	w.eventually("a page is read, and the rate allows more", func() bool {
		code, body := w.send(http.MethodGet, "/audit?tenant=described&limit=1", access, "")
		page = body
		return code == 200
	})
	var answer map[string]any
	require.NoError(t, json.Unmarshal([]byte(page), &answer))
	require.NotEmpty(t, answer["continue"])
	require.NoError(t, document.Components.Schemas["AuditPage"].Value.VisitJSON(answer), page)
	d.ask(http.MethodPost, "/logout", "", access, "", 204)
}
