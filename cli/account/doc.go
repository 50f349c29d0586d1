// Package account is who somebody is at a cloud's API gateway, as the command line keeps it.
//
// What comes in is a name and a password, once; what goes out is an access token for each request, renewed before it ends, by any
// number of processes at once. A profile is a file that its owner alone may read; a lock beside it lets one process at a time renew,
// since a refresh token is good once. Nothing of Kubernetes' enters: the gateway's own paths (/login, /refresh, /whoami) are all it asks.
package account
