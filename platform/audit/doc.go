// Package audit keeps the record of who did what in which tenant.
//
// What comes in are entries, each with the tenant that it is about; what goes out are chunks of them in a namespace of the platform's,
// which no tenant reaches, and pages of one tenant's trail. Room for an entry is taken before what it tells of is done (Trail.Reserve), so that
// what cannot be recorded is refused; it is written afterwards, many at once, and nobody waits for it. Each process writes chunks of its own.
//
// No body, no secret and nothing else of what was sent or answered may enter, and no kind of Kubernetes' but the one that chunks are.
package audit
