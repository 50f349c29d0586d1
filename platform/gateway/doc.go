// Package gateway is the face of the cloud's API: what users, their kubectl, their programs and the consoles speak to instead of
// the API server.
//
// What comes in is a request of somebody whom an Authenticator knows; what goes out to the API server is the same request with the
// tenant's namespace in place of the tenant's name, made as that somebody by impersonation, so that Kubernetes' RBAC alone says what
// may be done. What comes back has names in place of namespaces again, which are UUIDs and never show. Kinds are those of the CRDs
// in groups under mnicloud.jp, as they come and go; beside them only Pods and Events of the caller's tenants, to read, and the
// streams of those Pods. Nothing else of the cluster is reachable. The gateway stores nothing itself; what is done by it is recorded in the audit
// trail (platform/audit).
//
// No service's controllers may enter: who somebody is comes through Authenticator.
package gateway
