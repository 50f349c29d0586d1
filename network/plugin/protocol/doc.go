// Package protocol is what the CNI plugin and the node's daemon say to each other: one JSON request and one JSON response
// per connection of a Unix socket, and, while the daemon is down, the queue of detachments on disk. It imports nothing that
// would make the plugin slow to start.
package protocol
