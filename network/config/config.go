// Package config holds the CustomResourceDefinitions and the rights of the network's controllers and daemon, generated into crd/
// and rbac/, and what the API server refuses beside them, in policy/.
package config

import "embed"

// CRDs are the CustomResourceDefinitions as YAML files under crd/.
//
//go:embed crd/*.yaml
var CRDs embed.FS

// Policies are ValidatingAdmissionPolicies and their bindings as YAML files under policy/.
//
//go:embed policy/*.yaml
var Policies embed.FS

// Roles are the ClusterRoles of the room's controllers and of its daemon as YAML files under rbac/.
//
//go:embed rbac/*.yaml
var Roles embed.FS
