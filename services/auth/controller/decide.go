package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mnicloud/mnicloud/kit/conditions"
	authv1 "github.com/mnicloud/mnicloud/services/auth/api/v1alpha1"
)

// overdue is after how long a deletion that waits is said to need help.
const overdue = 5 * time.Minute

// members are the Tenant's members now: who was one stays the same person, whoever has the name meanwhile.
func members(tenant *authv1.Tenant, users map[string]*authv1.User) []authv1.MemberStatus {
	var out []authv1.MemberStatus
	for _, m := range tenant.Spec.Members {
		now := authv1.MemberStatus{User: m.User, State: authv1.MemberMissing}
		for _, before := range tenant.Status.Members {
			if before.User == m.User {
				now.UID = before.UID
			}
		}
		if user := users[m.User]; user != nil && user.DeletionTimestamp == nil {
			if now.UID == "" {
				now.UID = user.UID
			}
			now.State = authv1.MemberActive
			if now.UID != user.UID {
				now.State = authv1.MemberReplaced
			}
		}
		out = append(out, now)
	}
	return out
}

// tenantsOf are the Tenants that the User is a member of.
func tenantsOf(user *authv1.User, tenants []authv1.Tenant) []authv1.TenantOfUser {
	var out []authv1.TenantOfUser
	for i := range tenants {
		if role, ok := tenants[i].IsMember(user.Name, user.UID); ok {
			out = append(out, authv1.TenantOfUser{Name: tenants[i].Name, Role: role})
		}
	}
	slices.SortFunc(out, func(a, b authv1.TenantOfUser) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// ready says how a Tenant is that has all it needs.
func ready(tenant *authv1.Tenant) conditions.Result {
	var notes []string
	for _, m := range tenant.Status.Members {
		switch m.State {
		case authv1.MemberMissing:
			notes = append(notes, fmt.Sprintf("spec.members: there is no User %s", m.User))
		case authv1.MemberReplaced:
			notes = append(notes, fmt.Sprintf("spec.members: User %s was deleted and made anew, so is somebody else; take the member out and put it in again to let this one in", m.User))
		case authv1.MemberActive:
		}
	}
	return conditions.Ready("Ready", strings.Join(notes, "; "))
}

// going says what the end of the Tenant's namespace waits for.
func going(ns *corev1.Namespace, now time.Time) (conditions.Result, time.Duration) {
	var waits []string
	for _, c := range ns.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			waits = append(waits, c.Message)
		}
	}
	what := "the resources of the Tenant are being deleted"
	if len(waits) > 0 {
		what = "the Tenant waits for its resources: " + strings.Join(waits, " ")
	}
	if ns.DeletionTimestamp == nil {
		return conditions.Progressing("Deleting", what), 0
	}
	left := ns.DeletionTimestamp.Add(overdue).Sub(now)
	if left > 0 {
		return conditions.Progressing("Deleting", what), left
	}
	return conditions.Failed("Stuck", what+" This takes longer than it should: see why with kubectl get -n "+ns.Name+
		"; what removes their finalizers may not run. If it is gone for good, the cloud's administrator may remove metadata.finalizers of the objects named"), 0
}
