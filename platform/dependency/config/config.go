// Package config holds what the Dependency Controller needs in an API server: its rights, in rbac/, and the registration of its webhook,
// in webhook/.
package config

import "embed"

// Roles are the roles of the controller as YAML files under rbac/.
//
//go:embed rbac/*.yaml
var Roles embed.FS

// Webhook is the template of the webhook's registration. Its values are .WebhookURL, where mni-cloud serves webhooks, without
// a slash at the end, and .CABundle, the authority of the server's certificate, PEM in base64.
//
//go:embed webhook/dependencies.yaml
var Webhook string
