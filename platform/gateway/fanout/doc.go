// Package fanout lets many watchers of a kind share one watch of the API server.
//
// What comes in is a kind's one stream of events, of all tenants, as JSON; what goes out to each follower are the events of its namespace
// after a version, in order, each once. A Log keeps the newest events, in bounded memory: a follower is a place in it and costs no
// memory of its own, so that a slow one falls off its end and disturbs nobody. A Hub keeps a Log as the API server's watch goes.
//
// Who may follow what is not known here. Nothing of HTTP may enter.
package fanout
