// Package config holds what the auth service needs in an API server: CustomResourceDefinitions and the rights of its controllers,
// generated into crd/ and rbac/; the roles of tenants' members, in roles/; what is refused beside the definitions' rules, in
// policy/; and the registration of its webhook, in webhook/.
package config

import "embed"

// CRDs are the CustomResourceDefinitions as YAML files under crd/.
//
//go:embed crd/*.yaml
var CRDs embed.FS

// Roles are the roles of the room's controllers and of tenants' members as YAML files under rbac/ and roles/.
//
//go:embed rbac/*.yaml roles/*.yaml
var Roles embed.FS

// Policies are ValidatingAdmissionPolicies and their bindings as YAML files under policy/.
//
//go:embed policy/*.yaml
var Policies embed.FS

// Webhook is the template of the webhook's registration. Its values are .WebhookURL, where mni-cloud serves webhooks, without
// a slash at the end, and .CABundle, the authority of the server's certificate, PEM in base64.
//
//go:embed webhook/users.yaml
var Webhook string
