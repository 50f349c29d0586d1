package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// applied is what became of each document, in short.
func (r *reply) applied(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, d := range r.json(t)["documents"].([]any) {
		d := d.(map[string]any)
		out = append(out, fmt.Sprintf("%v %v/%v/%v %v %v", d["document"], d["kind"], d["namespace"], d["name"], d["result"], d["code"]))
	}
	return out
}

func TestManyDocumentsAreAppliedByOneRequestWithAResultEach(t *testing.T) {
	w := newWorld(t)
	vpcNamed := func(apiVersion, tenant, name, cidr string) string {
		return fmt.Sprintf("{apiVersion: %s, kind: Vpc, metadata: {namespace: %q, name: %s}, spec: {cidr: %q}}\n", apiVersion, tenant, name, cidr)
	}
	body := strings.Join([]string{
		vpcNamed("vpc.mnicloud.jp/v1alpha1", "acme", "one", "10.1.0.0/16"),
		"# nothing\n",
		vpcNamed("vpc/v1alpha", "acme", "two", "10.2.0.0/16"),
		vpcNamed("vpc/v1alpha", "globex", "three", "10.3.0.0/16"),
		vpcNamed("vpc/v1alpha", "acme", "four", "10.4.0.1/16"),
		"{apiVersion: vpc/v1alpha, kind: Palace, metadata: {namespace: acme, name: five}}\n",
		"{apiVersion: v1, kind: Secret, metadata: {namespace: acme, name: six}}\n",
		"{apiVersion: vpc/v1alpha, kind: Vpc, metadata: {namespace: acme/pods, name: ..}}\n",
		"{apiVersion: vpc/v1alpha, kind: Vpc, metadata: {namespace: acme}}\n",
		vpcNamed("vpc/v1alpha", "", "nine", "10.9.0.0/16"),
	}, "---\n")
	tried := w.send("alice", http.MethodPost, "/apply?dryRun=All&namespace=acme", body)
	require.Equal(t, http.StatusMultiStatus, tried.code, tried.body)
	require.Equal(t, 404, w.send("alice", http.MethodGet, vpcs+"/one", "").code, "a dry run makes nothing")

	made := w.send("alice", http.MethodPost, "/apply?namespace=acme", body)
	require.Equal(t, http.StatusMultiStatus, made.code, made.body)
	require.Equal(t, tried.applied(t), made.applied(t))
	require.Equal(t, []string{
		"1 Vpc/acme/one created 201", "3 Vpc/acme/two created 201", "4 Vpc/globex/three refused 403", "5 Vpc/acme/four refused 422",
		"6 Palace/acme/five refused 404", "7 Secret/acme/six refused 404", "8 Vpc/acme/pods/.. refused 400", "9 Vpc/acme/<nil> refused 400",
		"10 Vpc/acme/nine created 201",
	}, made.applied(t))
	require.Contains(t, made.body, `"field":"spec.cidr"`)
	w.noNamespace(made.body)
	require.Equal(t, 404, w.send("carol", http.MethodGet, strings.Replace(vpcs, "acme", "globex", 1)+"/three", "").code)

	again := w.send("alice", http.MethodPost, "/apply", vpcNamed("vpc/v1alpha", "acme", "one", "10.1.0.0/16"))
	require.Equal(t, 200, again.code, again.body)
	require.Equal(t, []string{"1 Vpc/acme/one applied 200"}, again.applied(t))
	// Who may only look applies nothing, and who is nobody is not listened to.
	require.Equal(t, []string{"1 Vpc/acme/one refused 403"}, w.send("carol", http.MethodPost, "/apply", vpcNamed("vpc/v1alpha", "acme", "one", "10.1.0.0/16")).applied(t))
	require.Equal(t, 401, w.send("", http.MethodPost, "/apply", body).code)
	problem := w.send("carol", http.MethodPost, "/apply", vpcNamed("vpc/v1alpha", "acme", "one", "10.1.0.0/16"), "Accept", "*/*")
	require.Contains(t, problem.body, `"type":"about:blank"`)
}

func TestABodyOfDocumentsThatCannotBeReadChangesNothing(t *testing.T) {
	w := newWorld(t)
	const good = "{apiVersion: vpc/v1alpha, kind: Vpc, metadata: {namespace: acme, name: good}, spec: {cidr: 10.1.0.0/16}}\n---\n"
	bomb := "a: &a [" + strings.Repeat("xxxxxxxxxx,", 1000) + "]\n"
	for i := range 4 {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", 'b'+i, 'b'+i, strings.Repeat(fmt.Sprintf("*%c,", 'a'+i), 100))
	}
	for name, bad := range map[string]struct {
		body, says string
		code       int
	}{
		"no YAML":            {good + "a: [", "document 2 is not YAML", 400},
		"no object":          {good + "[1, 2]", "document 2", 400},
		"a field twice":      {good + "{kind: Vpc, kind: Vpc}", "document 2", 400},
		"aliases of aliases": {good + bomb, "document 2: the YAML's aliases", 400},
		"too many":           {strings.Repeat(good, 201), "more than 200 documents", 413},
		"none":               {"", "no documents", 400},
		"too large":          {good + "a: " + strings.Repeat("x", 3<<20), "3145728", 413},
	} {
		t.Run(name, func(t *testing.T) {
			refused := w.send("alice", http.MethodPost, "/apply", bad.body, "Content-Type", "application/yaml")
			require.Equal(t, bad.code, refused.code, refused.body)
			require.Contains(t, refused.body, bad.says)
		})
	}
	require.Equal(t, 415, w.send("alice", http.MethodPost, "/apply", good, "Content-Type", "text/plain").code)
	require.Equal(t, 404, w.send("alice", http.MethodGet, vpcs+"/good", "").code)
}
