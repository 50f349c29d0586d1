// Package config holds the CustomResourceDefinitions of the network API, generated into crd/.
package config

import "embed"

// CRDs are the CustomResourceDefinitions as YAML files under crd/.
//
//go:embed crd/*.yaml
var CRDs embed.FS
