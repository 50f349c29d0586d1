package datapath

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// PolicyID is the number of a policy, never used again for another: interfaces have it, and flows remember it.
type PolicyID uint32

const (
	// PolicyNone lets everything pass.
	PolicyNone PolicyID = 0
	// PolicyClosed lets nothing pass.
	PolicyClosed PolicyID = 1
)

type digest = [sha256.Size]byte

// Policies is the tables of policies. A policy is written whole before an interface gets its number, and removed when none
// has it any more, so that no packet meets half of one. It is safe for concurrent use.
type Policies struct {
	peers   *Table[peerKey, uint32, bpfPolicyPeerKey, bpfPolicyPeer]
	rules   *Table[ruleKey, struct{}, bpfPolicyRuleKey, bpfPolicyRule]
	numbers *ebpf.Map

	mu sync.Mutex
	// policies are those in the tables; nil until they have been read.
	policies map[PolicyID]*compiled
	// byContent finds them by what is in the tables, bySource by what they were compiled from.
	byContent, bySource map[digest]PolicyID
	last                PolicyID
}

type peerKey struct {
	policy PolicyID
	prefix netip.Prefix
}

type ruleKey struct {
	policy PolicyID
	rule   compiledRule
}

func newPolicies(peers, rules, numbers *ebpf.Map) *Policies {
	return &Policies{
		peers:   newTable(peers, bpfMapPolicyPeers, peerKeyCodec(), peerCodec()),
		rules:   newTable(rules, bpfMapPolicyRules, ruleKeyCodec(), ruleCodec()),
		numbers: numbers,
	}
}

// PolicyRoom is how much more an owner's policies may take of the two tables, which all of a node share.
type PolicyRoom struct {
	// Peers is how many ranges of peers, Rules how many combinations of peers and ports, as of one policy.
	Peers, Rules int
	// counted are the policies that have been taken off: one that several interfaces have takes its entries once.
	counted map[PolicyID]bool
}

// ErrNoPolicyRoom is in the error for a policy that its owner has no room for.
var ErrNoPolicyRoom = errors.New("the rules of its VPC's interfaces on this node amount to too much")

// fits tells whether a policy has room, and what is lacking if not.
func (r *PolicyRoom) fits(id PolicyID, c *compiled) error {
	if r == nil || id != 0 && r.counted[id] || len(c.peers) <= r.Peers && len(c.rules) <= r.Rules {
		return nil
	}
	return fmt.Errorf("%w: %d ranges and %d combinations of peers and ports are more than the %d and %d that are left", ErrNoPolicyRoom,
		len(c.peers), len(c.rules), r.Peers, r.Rules)
}

// take takes a policy's entries off.
func (r *PolicyRoom) take(id PolicyID, c *compiled) {
	if r == nil || r.counted[id] {
		return
	}
	if r.counted == nil {
		r.counted = map[PolicyID]bool{}
	}
	r.counted[id] = true
	r.Peers, r.Rules = r.Peers-len(c.peers), r.Rules-len(c.rules)
}

// Number writes a policy, unless it is there already, and returns its number. Keep it with Collect.
func (p *Policies) Number(policy Policy) (PolicyID, error) { return p.NumberWithin(policy, nil) }

// NumberWithin is Number of a policy whose owner has only that room, off which it takes what the policy needs. One that does not fit is not
// written: ErrNoPolicyRoom.
func (p *Policies) NumberWithin(policy Policy, room *PolicyRoom) (PolicyID, error) {
	switch {
	case len(policy.Rules) == 0:
		return PolicyClosed, nil
	case policy.admitsAll():
		return PolicyNone, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.read(); err != nil {
		return PolicyClosed, err
	}
	source := policy.digest()
	if id, ok := p.bySource[source]; ok {
		if err := room.fits(id, p.policies[id]); err != nil {
			return PolicyClosed, err
		}
		room.take(id, p.policies[id])
		return id, nil
	}
	c, err := compile(policy)
	if err != nil {
		return PolicyClosed, err
	}
	content := c.digest()
	id, ok := p.byContent[content]
	if err := room.fits(id, c); err != nil {
		return PolicyClosed, err
	}
	if !ok {
		if id, err = p.write(c); err != nil {
			return PolicyClosed, err
		}
		p.policies[id], p.byContent[content] = c, id
	}
	p.bySource[source] = id
	room.take(id, c)
	return id, nil
}

// Collect removes all policies but those in use and returns how many there were. Interfaces must have been given others before.
func (p *Policies) Collect(used map[PolicyID]bool) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.read(); err != nil {
		return 0, err
	}
	unused := map[PolicyID]*compiled{}
	for id, c := range p.policies {
		if !used[id] {
			unused[id] = c
		}
	}
	if len(unused) == 0 {
		return 0, nil
	}
	awaitPrograms()
	var errs []error
	for id, c := range unused {
		if err := p.remove(id, c); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(p.policies, id)
		gone := func(_ digest, other PolicyID) bool { return other == id }
		maps.DeleteFunc(p.byContent, gone)
		maps.DeleteFunc(p.bySource, gone)
	}
	return len(unused), errors.Join(errs...)
}

// Len is how many policies are in the tables.
func (p *Policies) Len() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.read()
	return len(p.policies), err
}

// write gives a policy a number and writes its entries, or none.
func (p *Policies) write(c *compiled) (PolicyID, error) {
	id := p.last + 1
	if err := p.numbers.Put(uint32(0), uint32(id)); err != nil {
		return 0, fmt.Errorf("number a policy: %w", err)
	}
	p.last = id
	for rule := range c.rules {
		if err := p.rules.Set(ruleKey{id, rule}, struct{}{}); err != nil {
			return 0, errors.Join(err, p.remove(id, c))
		}
	}
	for prefix, class := range c.peers {
		if err := p.peers.Set(peerKey{id, prefix}, class); err != nil {
			return 0, errors.Join(err, p.remove(id, c))
		}
	}
	return id, nil
}

func (p *Policies) remove(id PolicyID, c *compiled) error {
	var errs []error
	for prefix := range c.peers {
		errs = append(errs, p.peers.Delete(peerKey{id, prefix}))
	}
	for rule := range c.rules {
		errs = append(errs, p.rules.Delete(ruleKey{id, rule}))
	}
	return errors.Join(errs...)
}

// read learns, once, what an earlier process wrote.
func (p *Policies) read() error {
	if p.policies != nil {
		return nil
	}
	var last uint32
	if err := p.numbers.Lookup(uint32(0), &last); err != nil {
		return fmt.Errorf("read the last policy's number: %w", err)
	}
	peers, err := p.peers.List()
	if err != nil {
		return err
	}
	rules, err := p.rules.List()
	if err != nil {
		return err
	}
	p.last = max(PolicyClosed, PolicyID(last))
	policies := map[PolicyID]*compiled{}
	at := func(id PolicyID) *compiled {
		if policies[id] == nil {
			policies[id] = &compiled{peers: map[netip.Prefix]uint32{}, rules: map[compiledRule]struct{}{}}
		}
		p.last = max(p.last, id)
		return policies[id]
	}
	for key, class := range peers {
		at(key.policy).peers[key.prefix] = class
	}
	for key := range rules {
		at(key.policy).rules[key.rule] = struct{}{}
	}
	p.policies, p.byContent, p.bySource = policies, map[digest]PolicyID{}, map[digest]PolicyID{}
	for id, c := range policies {
		p.byContent[c.digest()] = id
	}
	return nil
}

// digest identifies what is in the tables. One that was written in part is like no other.
func (c *compiled) digest() digest {
	h := sha256.New()
	for _, prefix := range slices.SortedFunc(maps.Keys(c.peers), comparePrefixes) {
		b, _ := prefix.MarshalBinary()
		h.Write(binary.BigEndian.AppendUint32(b, c.peers[prefix]))
	}
	for _, b := range slices.SortedFunc(maps.Keys(c.rules), compareRules) {
		h.Write(binary.BigEndian.AppendUint32([]byte{b.bits, byte(b.protocol), byte(b.match >> 8), byte(b.match)}, b.class))
	}
	return digest(h.Sum(nil))
}

// awaitPrograms returns when every run of a program that began before has ended, so that none still looks for entries that
// are about to go. Where the kernel does not offer it (nohz_full), one packet may be dropped at a change.
func awaitPrograms() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL waits for an RCU grace period
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0)
}
