// Package desired computes from API objects what the BIRD of one node should be told. It is pure: objects in, a bird.Config out.
package desired
