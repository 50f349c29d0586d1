package controller

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// Names of what a Tenant's namespace holds.
const (
	quotaName  = "mni-tenant"
	limitsName = "mni-tenant"
	adminRole  = "mni-tenant-admin"
	memberRole = "mni-tenant-member"
	viewerRole = "mni-tenant-viewer"
)

// defaultQuota is what a Tenant may have whose spec says nothing else.
var defaultQuota = corev1.ResourceList{
	corev1.ResourceRequestsCPU:     resource.MustParse("16"),
	corev1.ResourceRequestsMemory:  resource.MustParse("64Gi"),
	corev1.ResourceRequestsStorage: resource.MustParse("1Ti"),
	corev1.ResourcePods:            resource.MustParse("100"),
	countVPCs:                      resource.MustParse("10"),
	countExternalIPs:               resource.MustParse("10"),
}

const (
	countVPCs        corev1.ResourceName = "count/vpcs.vpc.mnicloud.jp"
	countExternalIPs corev1.ResourceName = "count/externalips.vpc.mnicloud.jp"
)

// otherKinds are the kinds of which a Tenant may have Quota.Objects each.
var otherKinds = []corev1.ResourceName{
	"count/subnets.vpc.mnicloud.jp", "count/routetables.vpc.mnicloud.jp", "count/securitygroups.vpc.mnicloud.jp",
	"count/floatingips.vpc.mnicloud.jp",
	"count/natgateways.vpc.mnicloud.jp", "count/vpcpeerings.vpc.mnicloud.jp", "count/containers.ctr.mnicloud.jp",
	"count/serviceaccounts.auth.mnicloud.jp",
}

const defaultObjects = 200

// What stands on all that is made for Tenants and Users.
const (
	labelPartOf = "app.kubernetes.io/part-of"
	partOf      = "mnicloud"
)

func labelsOf(tenant *authv1.Tenant) map[string]string {
	return map[string]string{
		labelPartOf: partOf, authv1.LabelTenant: tenant.Name, authv1.LabelTenantUID: string(tenant.UID),
	}
}

// renderNamespace is the Tenant's namespace. Its Pods get nothing of the node: no host network, host port, host path, privilege.
func renderNamespace(tenant *authv1.Tenant) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant.Status.Namespace, Labels: labelsOf(tenant)}}
	maps.Copy(ns.Labels, map[string]string{
		"pod-security.kubernetes.io/enforce":         "baseline",
		"pod-security.kubernetes.io/enforce-version": "latest",
	})
	return ns
}

// renderInside is what the Tenant's namespace holds.
func renderInside(tenant *authv1.Tenant) []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: tenant.Status.Namespace, Name: name, Labels: labelsOf(tenant)}
	}
	binding := func(role string, members ...authv1.Role) *rbacv1.RoleBinding {
		return &rbacv1.RoleBinding{ObjectMeta: meta(role), RoleRef: clusterRole(role), Subjects: subjects(tenant.UID, members...)}
	}
	return []client.Object{
		&corev1.ResourceQuota{ObjectMeta: meta(quotaName), Spec: corev1.ResourceQuotaSpec{Hard: hard(tenant.Spec.Quota)}},
		// A quota of what is asked for needs everybody to ask.
		&corev1.LimitRange{ObjectMeta: meta(limitsName), Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer,
			DefaultRequest: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
			},
		}}}},
		binding(adminRole, authv1.RoleOwner, authv1.RoleAdmin),
		binding(memberRole, authv1.RoleOwner, authv1.RoleAdmin, authv1.RoleMember),
		binding(viewerRole, authv1.RoleViewer),
	}
}

// hard are the limits of a quota.
func hard(q *authv1.Quota) corev1.ResourceList {
	out := maps.Clone(defaultQuota)
	objects := int64(defaultObjects)
	if q != nil {
		for name, amount := range map[corev1.ResourceName]*resource.Quantity{
			corev1.ResourceRequestsCPU: q.CPU, corev1.ResourceRequestsMemory: q.Memory, corev1.ResourceRequestsStorage: q.Storage,
		} {
			if amount != nil {
				out[name] = *amount
			}
		}
		for name, n := range map[corev1.ResourceName]*int64{
			corev1.ResourcePods: q.Workloads, countVPCs: q.VPCs, countExternalIPs: q.ExternalIPs,
		} {
			if n != nil {
				out[name] = *resource.NewQuantity(*n, resource.DecimalSI)
			}
		}
		if q.Objects != nil {
			objects = *q.Objects
		}
	}
	for _, kind := range otherKinds {
		out[kind] = *resource.NewQuantity(objects, resource.DecimalSI)
	}
	return out
}

// renderRights are the members' rights on the Tenant itself.
func renderRights(tenant *authv1.Tenant) []client.Object {
	rule := func(resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{
			APIGroups: []string{authv1.GroupVersion.Group}, Resources: []string{resource}, ResourceNames: []string{tenant.Name}, Verbs: verbs,
		}
	}
	var out []client.Object
	for _, right := range []struct {
		role  authv1.Role // who has it, beside those above
		rules []rbacv1.PolicyRule
		who   []authv1.Role
	}{
		{authv1.RoleViewer, []rbacv1.PolicyRule{rule("tenants", "get", "list", "watch")}, authv1.Roles()},
		{authv1.RoleAdmin, []rbacv1.PolicyRule{rule("tenants", "update", "patch")}, []authv1.Role{authv1.RoleOwner, authv1.RoleAdmin}},
		{authv1.RoleOwner, []rbacv1.PolicyRule{rule("tenants", "delete"), rule("tenants/owners", "update"), rule("tenants/audit", "get")}, []authv1.Role{authv1.RoleOwner}},
	} {
		meta := metav1.ObjectMeta{Name: rightsName(tenant.UID, right.role), Labels: labelsOf(tenant)}
		out = append(out, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: right.rules},
			&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: clusterRole(meta.Name), Subjects: subjects(tenant.UID, right.who...)})
	}
	return out
}

// renderSelf is a User's right to look at itself.
func renderSelf(user *authv1.User) []client.Object {
	name := authv1.GroupOfUser(user.UID)
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{labelPartOf: partOf, authv1.LabelUser: user.Name}}
	return []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{authv1.GroupVersion.Group}, Resources: []string{"users"}, ResourceNames: []string{user.Name}, Verbs: []string{"get", "list", "watch"},
		}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: clusterRole(name), Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name},
		}},
	}
}

func rightsName(tenant types.UID, role authv1.Role) string { return authv1.GroupOf(tenant, role) }

func clusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

func subjects(tenant types.UID, roles ...authv1.Role) []rbacv1.Subject {
	var out []rbacv1.Subject
	for _, role := range roles {
		out = append(out, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: authv1.GroupOf(tenant, role)})
	}
	return out
}
