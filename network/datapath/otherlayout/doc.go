// Package otherlayout is the datapath's programs with tables of another layout, as a later version might have them, for tests of
// upgrades: keys and values of what programs write begin with a field more (LATER in bpf/maps.h).
package otherlayout
