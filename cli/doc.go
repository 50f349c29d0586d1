// Package cli is the command line of the cloud: the root command `mni` and the commands of its tenants (apply, get,
// describe, delete, wait, logs, exec, ...).
//
// In come arguments and a kubeconfig; out go requests to the cloud's API and tables, documents or messages on the given
// streams. The commands are built on kubectl's libraries, so that output formats, selectors, watches and completion are
// those that people know. Nothing here knows how a cloud is started: the machine owner's commands come from elsewhere and
// are added to the root by cmd/mni.
package cli
