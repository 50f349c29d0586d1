package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mnicloud/mnicloud/kit/status"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
	vpcv1 "github.com/mnicloud/mnicloud/services/vpc/api/v1alpha1"
	"github.com/mnicloud/mnicloud/test/writes"
)

func pod(namespace string, change func(*corev1.PodSpec)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "p-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if change != nil {
		change(&p.Spec)
	}
	return p
}

func vpc(namespace, name string) *vpcv1.Vpc {
	return &vpcv1.Vpc{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: vpcv1.VpcSpec{CIDR: "10.0.0.0/16"}}
}

// quotaCounts waits until the quota of the Tenant is counted, before which nothing can be made.
func (w *world) quotaCounts(tenant *authv1.Tenant) {
	w.t.Helper()
	w.eventually("the quota is counted, and its use told", func() bool {
		return w.read(tenant) && len(tenant.Status.Used) > 0
	})
}

func TestATenantHasANamespaceWhosePodsGetNothingOfTheNode(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant("red")
	require.Equal(t, string(tenant.UID), tenant.Status.Namespace)
	w.quotaCounts(tenant)
	for field, change := range map[string]func(*corev1.PodSpec){
		"host namespaces": func(s *corev1.PodSpec) { s.HostNetwork = true },
		"hostPort": func(s *corev1.PodSpec) {
			s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		},
		"privileged": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		},
		"hostPath": func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		},
	} {
		require.ErrorContains(t, w.Create(w.ctx, pod(tenant.Status.Namespace, change)), field)
	}
	w.create(pod(tenant.Status.Namespace, nil))

	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant.Status.Namespace}}
	require.True(t, w.read(ns))
	before := ns.DeepCopy()
	ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
	require.ErrorContains(t, w.Patch(w.ctx, ns, client.MergeFrom(before)), "cannot be changed")
}

func TestATenantHasNoMoreThanItsQuota(t *testing.T) {
	w := newWorld(t)
	tenant := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "red"}, Spec: authv1.TenantSpec{Quota: &authv1.Quota{
		VPCs: ptr.To[int64](1), Workloads: ptr.To[int64](1), CPU: ptr.To(resource.MustParse("1")),
	}}}
	w.create(tenant)
	w.quotaCounts(tenant)
	w.eventually("one Vpc is made", func() bool { return w.Create(w.ctx, vpc(tenant.Status.Namespace, "a")) == nil })
	require.ErrorContains(t, w.Create(w.ctx, vpc(tenant.Status.Namespace, "b")), "exceeded quota")
	require.ErrorContains(t, w.Create(w.ctx, pod(tenant.Status.Namespace, func(s *corev1.PodSpec) {
		s.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	})), "exceeded quota")
	w.create(pod(tenant.Status.Namespace, nil))
	require.ErrorContains(t, w.Create(w.ctx, pod(tenant.Status.Namespace, nil)), "exceeded quota")
	w.eventually("the Tenant says what is used", func() bool {
		used := tenant.Status.Used[countVPCs]
		return w.read(tenant) && used.Value() == 1
	})
	require.NoError(t, w.Patch(w.ctx, tenant, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"quota":{"vpcs":2}}}`))))
	w.eventually("another Vpc is made", func() bool { return w.Create(w.ctx, vpc(tenant.Status.Namespace, "b")) == nil })
}

// https://github.com/cozystack/cozystack/issues/1746
func TestATenantWhoseQuotaIsUsedUpCanBeDeleted(t *testing.T) {
	w := newWorld(t)
	tenant := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "red"}, Spec: authv1.TenantSpec{Quota: &authv1.Quota{
		VPCs: ptr.To[int64](0), Workloads: ptr.To[int64](0), Objects: ptr.To[int64](0), CPU: ptr.To(resource.MustParse("0")),
	}}}
	w.create(tenant)
	w.quotaCounts(tenant)
	require.ErrorContains(t, w.Create(w.ctx, vpc(tenant.Status.Namespace, "a")), "exceeded quota")
	require.NoError(t, w.Delete(w.ctx, tenant))
	w.eventually("it is gone", func() bool { return !w.read(tenant) })
}

// https://github.com/kubernetes-sigs/kro/issues/1171
// https://github.com/kubernetes/kubernetes/issues/65200
func TestAControllerThatDiesAtAnyWriteLeavesNothingBehind(t *testing.T) {
	idleWorld(t)
	const atOnce = 8 // most of the time a namespace's end is waited for
	for first, lived := 1, false; !lived; first += atOnce {
		logs := make([]*writes.Log, atOnce)
		ok := t.Run(fmt.Sprintf("write %d to %d", first, first+atOnce-1), func(t *testing.T) {
			for i := range logs {
				logs[i] = writes.New(first + i)
				t.Run(fmt.Sprint("write ", first+i), func(t *testing.T) {
					t.Parallel()
					diesAt(t, fmt.Sprint("red-", first+i), logs[i])
				})
			}
		})
		require.True(t, ok)
		for i, log := range logs {
			if !log.Dead() {
				require.Greater(t, first+i, 10, "there are as many writes: %v", log.Lines())
				lived = true
			}
		}
	}
}

// diesAt makes and deletes a Tenant with a controller that dies at a write, and another after it.
func diesAt(t *testing.T, name string, log *writes.Log) {
	w := connect(t)
	w.only = name
	w.start(log, false)
	tenant := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w.create(tenant)
	w.eventually("it is ready, or the controller died", func() bool {
		return log.Dead() || w.read(tenant) && tenant.Status.Phase == status.Ready
	})
	if !log.Dead() {
		require.NoError(t, w.Delete(w.ctx, tenant))
		w.eventually("it is gone, or the controller died", func() bool { return log.Dead() || !w.read(tenant) })
	}
	w.stop()
	if w.read(tenant) {
		require.NoError(t, client.IgnoreNotFound(w.Delete(w.ctx, tenant)))
		w.start(nil, false)
		w.eventually("it is gone", func() bool { return !w.read(tenant) })
		w.stop()
	}
	require.Empty(t, w.madeFor(tenant.UID), log.Lines())
}

// madeFor is what is there of a Tenant.
func (w *world) madeFor(uid types.UID) (left []string) {
	w.t.Helper()
	var namespaces corev1.NamespaceList
	var roles rbacv1.ClusterRoleList
	var bindings rbacv1.ClusterRoleBindingList
	for _, list := range []client.ObjectList{&namespaces, &roles, &bindings} {
		require.NoError(w.t, w.List(w.ctx, list, client.MatchingLabels{authv1.LabelTenantUID: string(uid)}))
	}
	for i := range namespaces.Items {
		left = append(left, "Namespace "+namespaces.Items[i].Name)
		require.Empty(w.t, namespaces.Items[i].OwnerReferences)
	}
	for i := range roles.Items {
		left = append(left, "ClusterRole "+roles.Items[i].Name)
	}
	for i := range bindings.Items {
		left = append(left, "ClusterRoleBinding "+bindings.Items[i].Name)
	}
	return left
}

// https://github.com/openshift/hive/pull/2943
func TestTenantsAndUsersThatAreAsTheyShouldBeCostNoWrite(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "correct horse")
	tenant := w.tenant("red", "ada", "owner")
	w.quotaCounts(tenant)
	w.account(tenant, "ci", authv1.RoleMember)
	w.eventually("its use is told", func() bool {
		used := tenant.Status.Used["count/serviceaccounts.auth.mnicloud.jp"]
		return w.read(tenant) && used.Value() == 1
	})
	w.eventually("the User says so too", func() bool { return len(w.stored("ada").Status.Tenants) == 1 })
	w.stop()
	log := writes.New(0)
	w.start(log, true)
	ours := func() (lines []string) {
		for _, line := range log.Lines() {
			if strings.HasSuffix(line, "/ada") || strings.HasSuffix(line, "/red") || strings.Contains(line, string(tenant.UID)) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	// Others come, so that what was there has been looked at when they are done.
	w.user("bob", "correct horse")
	w.quotaCounts(w.tenant("blue", "bob", "owner"))
	w.eventually("bob says so too", func() bool { return len(w.stored("bob").Status.Tenants) == 1 })
	require.Empty(t, ours())
	// A change that reaches both reconcilers: each says so in its object's status, once.
	require.NoError(t, w.Patch(w.ctx, tenant, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"members":[{"user":"ada","role":"viewer"}]}}`))))
	w.eventually("it arrives", func() bool {
		now := w.stored("ada").Status.Tenants
		return len(now) == 1 && now[0].Role == authv1.RoleViewer && w.read(tenant) && tenant.Status.ObservedGeneration == tenant.Generation
	})
	require.ElementsMatch(t, []string{"patch status of *v1alpha1.User /ada", "patch status of *v1alpha1.Tenant /red"}, ours())
}

// https://github.com/cozystack/cozystack/issues/2473
// https://github.com/kubernetes-sigs/kro/issues/1316
func TestATenantThatCannotGoSaysWhatHoldsIt(t *testing.T) {
	w := newWorld(t)
	tenant := w.tenant("red")
	w.quotaCounts(tenant)
	held := vpc(tenant.Status.Namespace, "held")
	held.Finalizers = []string{"example.com/nobody-removes-it"}
	w.eventually("it is made", func() bool { return w.Create(w.ctx, held) == nil })
	require.NoError(t, w.Delete(w.ctx, tenant))
	w.eventually("it says why", func() bool {
		if !w.read(tenant) || len(tenant.Status.Conditions) == 0 {
			return false
		}
		for _, c := range tenant.Status.Conditions {
			if c.Type == status.ConditionReady && c.Reason == "Deleting" && containsAll(c.Message, "vpcs.vpc.mnicloud.jp", "example.com/nobody-removes-it") {
				return true
			}
		}
		return false
	})
	require.Error(t, w.Create(w.ctx, vpc(tenant.Status.Namespace, "late")), "nothing new is made meanwhile")
	result, again := going(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns", DeletionTimestamp: &metav1.Time{Time: time.Unix(0, 0)}}}, time.Unix(0, 0).Add(overdue))
	require.Zero(t, again)
	require.Equal(t, "Stuck", result.Reason, "after a while it says that it needs help")
	require.NoError(t, w.Patch(w.ctx, held, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	w.eventually("it is gone", func() bool { return !w.read(tenant) })
}

// https://github.com/golang/vulndb/issues/1135
// https://github.com/golang/vulndb/issues/3077
// https://github.com/golang/vulndb/issues/3893
// https://github.com/golang/vulndb/issues/5283
func TestAForeignNamespaceIsNeverTakenNorDeleted(t *testing.T) {
	w := idleWorld(t)
	tenant := &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "red"}}
	w.create(tenant)
	for _, name := range []string{"kube-system", "mni-system", "default"} {
		patch := []byte(`{"status":{"namespace":"` + name + `"}}`)
		require.ErrorContains(t, w.Status().Patch(w.ctx, tenant, client.RawPatch(types.MergePatchType, patch)), "must be a UUID")
	}
	foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "01234567-89ab-cdef-0123-456789abcdef", Labels: map[string]string{"whose": "anothers"}}}
	w.create(foreign)
	t.Cleanup(func() { _ = w.Delete(w.ctx, foreign) })
	require.NoError(t, w.Status().Patch(w.ctx, tenant, client.RawPatch(types.MergePatchType, []byte(`{"status":{"namespace":"`+foreign.Name+`"}}`))))
	w.start(nil, false)
	w.eventually("it says so", func() bool { return w.read(tenant) && tenant.Status.Phase == status.Error })
	before := foreign.DeepCopy()
	require.True(t, w.read(foreign))
	require.Equal(t, before.Labels, foreign.Labels)
	var bindings rbacv1.RoleBindingList
	require.NoError(t, w.List(w.ctx, &bindings, client.InNamespace(foreign.Name)))
	require.Empty(t, bindings.Items)
	require.NoError(t, w.Delete(w.ctx, tenant))
	w.eventually("the Tenant goes", func() bool { return !w.read(tenant) })
	require.True(t, w.read(foreign))
	require.Nil(t, foreign.DeletionTimestamp)
}

func TestMembersMayWhatTheirRoleSaysInTheirTenantOnly(t *testing.T) {
	w := newWorld(t)
	red, blue := w.tenant("red"), w.tenant("blue")
	w.quotaCounts(red)
	w.quotaCounts(blue)
	role := func(r authv1.Role) client.Client { return w.as("ada", authv1.GroupOf(red.UID, r)) }
	w.eventually("a member's Vpc is made", func() bool {
		return role(authv1.RoleMember).Create(w.ctx, vpc(red.Status.Namespace, "a")) == nil
	})
	for _, r := range authv1.Roles() {
		c := role(r)
		var vpcs vpcv1.VpcList
		w.eventually(string(r)+" sees", func() bool { return c.List(w.ctx, &vpcs, client.InNamespace(red.Status.Namespace)) == nil })
		require.NotEmpty(t, vpcs.Items, r)
		require.NoError(t, c.Get(w.ctx, client.ObjectKey{Name: "red"}, &authv1.Tenant{}), r)

		err := c.Create(w.ctx, vpc(red.Status.Namespace, "by-"+string(r)))
		require.Equal(t, r == authv1.RoleViewer, apierrors.IsForbidden(err), "%s: %v", r, err)
		name := patchOf(`{"spec":{"displayName":"by ` + string(r) + `"}}`)
		require.Equal(t, r != authv1.RoleOwner && r != authv1.RoleAdmin, apierrors.IsForbidden(c.Patch(w.ctx, red.DeepCopy(), name)), r)
		owners := patchOf(`{"spec":{"members":[{"user":"` + string(r) + `","role":"owner"}]}}`)
		require.Equal(t, r != authv1.RoleOwner, apierrors.IsForbidden(c.Patch(w.ctx, red.DeepCopy(), owners)), r)
		require.Equal(t, r == authv1.RoleOwner, w.mayAudit(c, "red"), r)
		require.False(t, w.mayAudit(c, "blue"), r)
		require.False(t, w.mayAudit(c, ""), r)

		// Nothing more, for any role.
		for what, err := range map[string]error{
			"another tenant's":         c.List(w.ctx, &vpcs, client.InNamespace(blue.Status.Namespace)),
			"all tenants'":             c.List(w.ctx, &vpcs),
			"another Tenant":           c.Get(w.ctx, client.ObjectKey{Name: "blue"}, &authv1.Tenant{}),
			"Users":                    c.List(w.ctx, &authv1.UserList{}),
			"Secrets":                  c.List(w.ctx, &corev1.SecretList{}, client.InNamespace(red.Status.Namespace)),
			"sessions":                 c.List(w.ctx, &corev1.SecretList{}, client.InNamespace(authv1.SystemNamespace)),
			"Pods of its own making":   c.Create(w.ctx, pod(red.Status.Namespace, nil)),
			"the quota":                c.Patch(w.ctx, red.DeepCopy(), patchOf(`{"spec":{"quota":{"vpcs":1000}}}`)),
			"the status":               c.Status().Patch(w.ctx, red.DeepCopy(), patchOf(`{"status":{"members":[]}}`)),
			"rights":                   c.Create(w.ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: red.Status.Namespace, Name: "r"}, RoleRef: clusterRole("cluster-admin")}),
			"a status of its resource": c.Status().Patch(w.ctx, vpc(red.Status.Namespace, "a"), patchOf(`{"status":{"phase":"Ready"}}`)),
			"its namespace":            c.Delete(w.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: red.Status.Namespace}}),
			"a new Tenant":             c.Create(w.ctx, &authv1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "by-" + string(r)}}),
		} {
			require.True(t, apierrors.IsForbidden(err), "%s: %s: %v", r, what, err)
		}
	}
	require.NoError(t, w.List(w.ctx, &corev1.SecretList{}, client.InNamespace(authv1.SystemNamespace)), "the administrator may")
}

// mayAudit asks, as the gateway does, whether somebody may read a Tenant's audit trail; without a name, that of all.
func (w *world) mayAudit(c client.Client, tenant string) bool {
	w.t.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Group: authv1.GroupVersion.Group, Resource: "tenants", Subresource: "audit", Name: tenant, Verb: "get"},
	}}
	require.NoError(w.t, c.Create(w.ctx, review))
	return review.Status.Allowed
}

func patchOf(json string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(json)) }

func TestAUserMayLookAtItselfAndAtNoOther(t *testing.T) {
	w := newWorld(t)
	ada, eve := w.user("ada", "correct horse"), w.user("eve", "correct horse")
	mayGet := func(who *authv1.User, groups ...string) func(whom string) error {
		c := w.as(who.Name, groups...)
		return func(whom string) error { return c.Get(w.ctx, client.ObjectKey{Name: whom}, &authv1.User{}) }
	}
	asAda := mayGet(ada, authv1.GroupOfUser(ada.UID))
	w.eventually("ada looks at itself", func() bool { return asAda("ada") == nil })
	require.True(t, apierrors.IsForbidden(asAda("eve")))
	require.True(t, apierrors.IsForbidden(mayGet(ada)("ada")), "not by a token that is narrower than the User")
	require.True(t, apierrors.IsForbidden(w.as("ada", authv1.GroupOfUser(ada.UID)).Patch(w.ctx, ada.DeepCopy(), patchOf(`{"spec":{"administrator":true}}`))))
	// What somebody takes away comes back, and what a User had goes with it.
	right := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: authv1.GroupOfUser(eve.UID)}}
	w.eventually("eve has the right", func() bool { return w.read(right) })
	require.NoError(t, w.Delete(w.ctx, right))
	w.eventually("eve has it again", func() bool { return w.read(right) })
	require.NoError(t, w.Delete(w.ctx, eve))
	w.eventually("eve is gone", func() bool { return !w.read(eve) })
	require.False(t, w.read(right))
	require.False(t, w.read(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: authv1.GroupOfUser(eve.UID)}}))
}

func TestUsersAndTenantsSayWhoIsWhere(t *testing.T) {
	w := newWorld(t)
	w.user("ada", "correct horse")
	red := w.tenant("red", "ada", "owner", "bob", "viewer")
	w.tenant("blue", "ada", "viewer")
	w.eventually("ada is in both", func() bool {
		now := w.stored("ada").Status.Tenants
		return len(now) == 2 && now[0] == authv1.TenantOfUser{Name: "blue", Role: "viewer"} && now[1] == authv1.TenantOfUser{Name: "red", Role: "owner"}
	})
	require.True(t, w.read(red))
	require.Equal(t, []authv1.MemberStatus{{User: "ada", UID: w.stored("ada").UID, State: authv1.MemberActive}, {User: "bob", State: authv1.MemberMissing}}, red.Status.Members)
	bob := w.user("bob", "correct horse")
	w.eventually("bob is in red", func() bool { return len(w.stored("bob").Status.Tenants) == 1 })

	require.NoError(t, w.Delete(w.ctx, bob))
	w.eventually("bob is gone", func() bool { return !w.read(bob) })
	again := w.user("bob", "correct horse")
	w.eventually("another bob is no member", func() bool {
		return w.read(red) && len(red.Status.Members) == 2 && red.Status.Members[1].State == authv1.MemberReplaced
	})
	_, member := red.IsMember("bob", again.UID)
	require.False(t, member)

	require.NoError(t, w.Patch(w.ctx, red, patchOf(`{"spec":{"members":[]}}`)))
	w.eventually("ada is in blue only", func() bool { return len(w.stored("ada").Status.Tenants) == 1 })
}

// https://github.com/k8ssandra/k8ssandra-operator/issues/1752
func TestOnlyTheSystemsOwnSecretsAreCached(t *testing.T) {
	for object, by := range CacheByObject() {
		if _, ok := object.(*corev1.Secret); ok {
			require.Len(t, by.Namespaces, 1)
			require.Equal(t, "auth.mnicloud.jp/credential", by.Namespaces[authv1.SystemNamespace].LabelSelector.String())
			return
		}
	}
	t.Fatal("Secrets are cached without a limit")
}
