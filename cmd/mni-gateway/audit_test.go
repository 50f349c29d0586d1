package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mnicloud/mnicloud/platform/audit"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// mayAudit gives a Tenant's owners the right to its audit trail, as the Auth Controller does.
func (w *world) mayAudit(tenant *authv1.Tenant) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: authv1.GroupOf(tenant.UID, authv1.RoleOwner)}
	w.make(&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"auth.mnicloud.jp"}, Resources: []string{"tenants/audit"}, ResourceNames: []string{tenant.Name}, Verbs: []string{"get"}},
	}})
	w.make(&rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: meta.Name}},
	})
}

func TestAnOwnerReadsTheAuditTrailFromTheCommandLine(t *testing.T) {
	w := newWorld(t)
	h := w.atHome()
	w.mayAudit(w.tenant("audited", "ada", authv1.RoleOwner, "get", "list", "watch", "create", "update", "patch", "delete"))
	w.eventually("ada's tenants are known", func() bool {
		s := h.login("ada", "default", "--tenant", "audited")
		return s.code == 0 && strings.Contains(s.out, "audited (owner)")
	})
	nothing := h.mni("", "audit")
	require.Equal(t, said{0, "", "Nothing of the kind is in the audit trail of tenant audited.\n"}, nothing)
	require.Equal(t, "vpc/web created\n", h.must("{apiVersion: vpc/v1alpha, kind: Vpc, metadata: {name: web}, spec: {cidr: 10.42.0.0/16}}", "apply", "-f", "-"))
	code, body := w.send(http.MethodDelete, vpcsOf("audited")+"/none", w.login("ada", right).Access, "")
	require.Equal(t, 404, code, body)
	token := strings.TrimSpace(h.must("", "token", "create", "deploy", "--tenant", "audited", "--role", "viewer"))
	w.eventually("the token is refused as a viewer's", func() bool {
		code, _ := w.send(http.MethodDelete, vpcsOf("audited")+"/web", token, "")
		return code == 403
	})
	id := strings.Fields(h.must("", "token", "ls"))[6]
	w.eventually("the token is told of", func() bool {
		return strings.Contains(h.must("", "audit", "--resource", "tokens", "--verb", "create"), id+"   ok")
	})
	var told string
	w.eventually("all is told", func() bool {
		told = h.must("", "audit", "-o", "wide", "--resource", "vpc")
		return strings.Contains(told, "403 Forbidden") && strings.Contains(told, "ok") && strings.Contains(told, "404 NotFound")
	})
	require.Regexp(t, regexp.MustCompile(`(?s)^TIME +USER +VERB +RESOURCE +NAME +RESULT +SOURCE +BY\n.* +ada +delete +vpcs +web +403 Forbidden .*127.0.0.1 +token [0-9a-z]+\n`+
		`.* +ada +delete +vpcs +none +404 NotFound +127.0.0.1 +session [0-9a-z]+\n.* +ada +apply +vpcs +web +ok +127.0.0.1 +session `), told)
	require.Contains(t, h.must("", "audit", "--verb", "apply", "-o", "json"), `"name": "web"`)
	require.Contains(t, h.must("", "audit", "--since", "1h", "--user", "ada", "--limit", "1", "-o", "yaml"), "reason: Forbidden")
	require.Equal(t, "Nothing of the kind is in the audit trail of tenant audited.\n", h.mni("", "audit", "--user", "eve").err)
	// A viewer's token reads nothing of it, whoever it is of, and red is not ada's own.
	code, body = w.send(http.MethodGet, "/audit?tenant=audited", token, "")
	require.Equal(t, 403, code, body)
	require.Contains(t, h.mni("", "audit", "-t", "red").err, `only an owner of tenant "red", or the cloud's administrator, reads its audit trail`)
	require.Contains(t, h.mni("", "audit", "-t", "blue").err, `there is no tenant "blue" that you are a member of; you are a member of audited, red`)
	require.Contains(t, h.must("", "__completeNoDesc", "audit", "--verb", "del"), "delete\ndeletecollection\n")
	require.Contains(t, h.must("", "__completeNoDesc", "audit", "--tenant", "au"), "audited\n")
}

func TestAStopLosesNothingOfTheAuditTrail(t *testing.T) {
	p := start(t)
	var want []string
	for i := range 20 {
		name := fmt.Sprint("v-", i)
		code, body := p.send(http.MethodPost, vpcsOf("bench"), p.login, `{"apiVersion":"vpc.mnicloud.jp/v1alpha1","kind":"Vpc","metadata":{"name":"`+name+`"},"spec":{"cidr":"10.0.0.0/16"}}`)
		require.Equal(t, 201, code, body)
		want = append([]string{name}, want...)
	}
	require.NoError(t, syscall.Kill(p.pid, syscall.SIGTERM))
	reader := audit.New(p.Client, audit.Options{})
	var names []string
	p.eventually("all is told", func() bool {
		page, err := reader.Read(t.Context(), audit.Query{Tenant: audit.Tenant{UID: p.namespaceOf("bench")}})
		require.NoError(t, err)
		names = nil
		for _, e := range page.Entries {
			names = append(names, e.Name)
		}
		return len(names) >= len(want)
	})
	require.Equal(t, want, names)
}
