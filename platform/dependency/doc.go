// Package dependency is the Dependency Controller: it looks after what tenants' resources depend on, of all kinds of the cloud, also those
// that are defined while it runs. What comes in are the definitions of kinds (package declare reads their references) and what
// matters here of their objects; what goes out are three things that it writes onto those objects, and nothing else: the guard, a
// finalizer on what something depends on; status.dependencies, whether all that an object depends on is Ready; and
// status.dependents, what needs or keeps it. It makes and deletes nothing.
//
// decide.go decides, purely, from what state.go holds; watch.go fills that by informers; controller.go writes. webhook.go refuses cycles.
package dependency
