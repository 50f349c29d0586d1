package v1alpha1

import "k8s.io/apimachinery/pkg/types"

const (
	// Finalizer keeps a User, a Tenant or a ServiceAccount until what was made for it is gone.
	Finalizer = "auth.mnicloud.jp/cleanup"
	// FieldOwner is the field manager of everything that the Auth Controller makes.
	FieldOwner = "auth.mnicloud.jp/controller"

	// LabelTenant stands on a tenant's namespace and is the name of its Tenant.
	LabelTenant = "auth.mnicloud.jp/tenant"
	// LabelTenantUID stands on whatever is made for a Tenant and is the Tenant's UID.
	LabelTenantUID = "auth.mnicloud.jp/tenant-uid"
	// LabelUser stands on a Secret that keeps a session or an API token, and on the rights that a User has on itself, and is the name of
	// that User.
	LabelUser = "auth.mnicloud.jp/user"
	// LabelServiceAccountUID stands on a Secret that keeps an API token of a ServiceAccount, and is that one's UID. It has no LabelUser.
	LabelServiceAccountUID = "auth.mnicloud.jp/service-account-uid"
	// LabelCredential stands on a Secret of the system's namespace and says what that keeps: session, token or signing-keys.
	LabelCredential = "auth.mnicloud.jp/credential"

	// SystemNamespace keeps sessions, API tokens and signing keys.
	SystemNamespace = "mni-system"

	// UserPrefix and a User's name make the name by which Kubernetes knows the User: a User called "admin" is nobody that a
	// certificate speaks for.
	UserPrefix = "mni:user:"
	// ServiceAccountPrefix with the namespace of a Tenant and a ServiceAccount's name make the name by which Kubernetes knows the
	// ServiceAccount. No User has such a name, and no two Tenants have one namespace.
	ServiceAccountPrefix = "mni:serviceaccount:"
	// GroupUsers are all Users.
	GroupUsers = "mni:users"
	// GroupServiceAccounts are all ServiceAccounts. None of them is in GroupUsers.
	GroupServiceAccounts = "mni:serviceaccounts"
	// GroupAdministrators are the cloud's administrators.
	GroupAdministrators = "mni:administrators"
)

// Roles of a Tenant's members, each with the rights of those after it.
const (
	// RoleOwner also names owners, and deletes the Tenant.
	RoleOwner Role = "owner"
	// RoleAdmin also says who the members are, and makes ServiceAccounts.
	RoleAdmin Role = "admin"
	// RoleMember also makes, changes and deletes the Tenant's resources.
	RoleMember Role = "member"
	// RoleViewer sees everything but secrets.
	RoleViewer Role = "viewer"
)

// Roles lists all roles, the mightiest first.
func Roles() []Role { return []Role{RoleOwner, RoleAdmin, RoleMember, RoleViewer} }

// GroupOfUser is the group that only the User with the UID is in, and not by a token that is narrower than the User: it may look at itself.
func GroupOfUser(uid types.UID) string { return "mni:self:" + string(uid) }

// UserName is the name by which Kubernetes knows a User.
func UserName(user string) string { return UserPrefix + user }

// ServiceAccountName is the name by which Kubernetes knows a ServiceAccount.
func ServiceAccountName(namespace, name string) string {
	return ServiceAccountPrefix + namespace + ":" + name
}

// ServiceAccountRoles lists the roles that a ServiceAccount can have, the mightiest first. None of them owns a Tenant.
func ServiceAccountRoles() []Role { return []Role{RoleAdmin, RoleMember, RoleViewer} }

// GroupOf is the group of those with a role in the Tenant with the UID. A Tenant made anew under the same name has other groups.
func GroupOf(tenant types.UID, role Role) string {
	return "mni:tenant:" + string(tenant) + ":" + string(role)
}
