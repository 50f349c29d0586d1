// Package config holds what the gateway needs in an API server: its rights.
package config

import "embed"

// Roles are the gateway's roles as YAML files under rbac/.
//
//go:embed rbac/*.yaml
var Roles embed.FS
