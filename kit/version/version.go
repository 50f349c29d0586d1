// Package version tells which build of mNi Cloud a binary is.
package version

// version is set by the linker: -X github.com/mnicloud/mnicloud/kit/version.version=v1.2.3.
var version = "dev"

// String is the version this binary was built as: a git description, or "dev" for a build outside of make.
func String() string { return version }
