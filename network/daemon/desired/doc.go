// Package desired computes what a node's maps should hold from what the API server and the node's own attachments say. In come
// API objects and attachments, out come typed map entries. Pure functions only: no clients, no maps, no clock.
package desired
