// Package parts says what an instance is made of: which certificates, configuration files and processes. Everything here
// is computed from Options, without looking at the machine; Write puts the files in place, and the supervisor gets the
// plan. A flag of a Kubernetes component has its one place in this package.
package parts
