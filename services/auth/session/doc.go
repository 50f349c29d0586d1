// Package session logs Users in, makes tokens of Users and ServiceAccounts, and says who sends a request.
//
// What comes in are passwords, refresh tokens, access tokens and API tokens; what goes out are tokens, and who the sender is to
// Kubernetes (a user name and groups, to be impersonated). Sessions, API tokens and signing keys are Secrets in the system's
// namespace, and nowhere else: any number of processes may serve them. Of refresh and API tokens only hashes are stored. Rights are
// not in tokens: they are what Users, ServiceAccounts and Tenants say at the time of the request.
//
// login.go checks passwords, session.go and token.go make and end sessions and API tokens, account.go those of ServiceAccounts, keys.go
// has the keys that sign, and authenticate.go tells who sends a request.
package session
