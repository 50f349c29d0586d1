// Package controller reconciles auth.mnicloud.jp. What comes in are Users, Tenants and ServiceAccounts; what goes out is a namespace for
// each Tenant with its quota and its members' rights, the relation of the two in both statuses, and the end of credentials that have
// expired or whose User or ServiceAccount is gone.
//
// tenant.go, user.go and serviceaccount.go read from top to bottom; decide.go holds their decisions and render.go what is made, both pure. The rights on
// Tenants and the binding of roles are those that the controller gives to members: nobody can give more than he has.
//
// +kubebuilder:rbac:groups=auth.mnicloud.jp,resources=users;serviceaccounts,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=auth.mnicloud.jp,resources=tenants,verbs=get;list;watch;update;patch;delete
// +kubebuilder:rbac:groups=auth.mnicloud.jp,resources=tenants/owners,verbs=update
// +kubebuilder:rbac:groups=auth.mnicloud.jp,resources=tenants/audit,verbs=get
// +kubebuilder:rbac:groups=auth.mnicloud.jp,resources=users/status;tenants/status;serviceaccounts/status,verbs=get;update;patch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=resourcequotas;limitranges,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=rolebindings,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles;clusterrolebindings,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=mni-tenant-admin;mni-tenant-member;mni-tenant-viewer,verbs=bind
// +kubebuilder:rbac:groups="",namespace=mni-system,resources=secrets,verbs=get;list;watch;create;update;patch;delete;deletecollection
package controller
