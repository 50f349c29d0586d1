// Package password has all that is done with passwords: what may be one, its hash, and the mutating webhook by which the API
// server has the password of a User hashed before it stores it.
//
// What comes in is plain text; what goes out is a bcrypt hash, or an error that does not repeat the plain text. Nothing here
// keeps, logs or sends plain text.
package password
