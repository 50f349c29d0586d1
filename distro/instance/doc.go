// Package instance says what an embedded cloud is called, where its files are and which addresses it uses.
//
// Several instances run side by side on one machine. Each has a slot, taken on its first start and kept until it is
// reset; the slot decides every address, port and link name, so two instances never meet. The package only computes
// and remembers: it touches neither the network nor any process.
package instance
