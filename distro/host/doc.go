// Package host is the `mni host` command: what the machine itself needs before it can become a cloud.
package host
