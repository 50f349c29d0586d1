package datapath

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
)

// Programs by the name of their pinned links, but for those of Pods, which have podLinkPrefix and an ifindex.
var programsOfLinks = map[string]string{hostLink: bpfProgHostEgress, vxlanLink: bpfProgVxlanIngress, uplinkLink: bpfProgUplinkIngress}

// Interfaces are those that a datapath has programs at, by ifindex.
type Interfaces struct {
	// HostPeer is the far end of the host's veth.
	HostPeer, VXLAN, Uplink int
	// Pods are the host's ends of Pods' links.
	Pods []int
}

func (i Interfaces) links() map[string]int {
	links := map[string]int{hostLink: i.HostPeer, vxlanLink: i.VXLAN, uplinkLink: i.Uplink}
	for _, ifindex := range i.Pods {
		links[fmt.Sprint(podLinkPrefix, ifindex)] = ifindex
	}
	return links
}

// CompareAttached says at which of the interfaces a datapath that is pinned at a path has no program as this kernel has them, and what is
// pinned beside. Interfaces are those of the calling thread's network namespace.
func CompareAttached(pinPath string, want Interfaces) ([]string, error) {
	mode, err := modeOfKernel()
	if err != nil {
		return nil, err
	}
	return compareAttached(pinPath, want, mode)
}

func compareAttached(pinPath string, want Interfaces, mode Mode) ([]string, error) {
	entries, err := os.ReadDir(linksDir(pinPath))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list the pinned links: %w", err)
	}
	var wrong []string
	links := want.links()
	for _, e := range entries {
		if _, ok := links[e.Name()]; !ok || mode == ModeClsact {
			wrong = append(wrong, fmt.Sprintf("pin %s is left over", e.Name()))
		}
	}
	d := &Datapath{config: Config{PinPath: pinPath}}
	for name, ifindex := range links {
		if mode == ModeClsact {
			program := bpfProgPodEgress
			if of, ok := programsOfLinks[name]; ok {
				program = of
			}
			if !hasFilter(program, ifindex) {
				wrong = append(wrong, fmt.Sprintf("interface %d has no filter %s", ifindex, program))
			}
			continue
		}
		if _, err := os.Stat(d.linkPath(name)); errors.Is(err, os.ErrNotExist) {
			wrong = append(wrong, fmt.Sprintf("pin %s of interface %d is missing", name, ifindex))
			continue
		}
		l, err := d.pinnedLink(name, ifindex)
		switch {
		case err != nil:
			return nil, err
		case l == nil:
			wrong = append(wrong, fmt.Sprintf("pin %s is not of interface %d", name, ifindex))
		default:
			_ = l.Close()
		}
	}
	slices.Sort(wrong)
	return wrong, nil
}

// modeOfKernel is how programs are attached where the kernel may choose.
func modeOfKernel() (Mode, error) {
	nothing, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "MIT", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return "", fmt.Errorf("load a program of one instruction: %w", err)
	}
	defer nothing.Close()
	if haveTCX(nothing) {
		return ModeTCX, nil
	}
	return ModeClsact, nil
}

// hasFilter tells whether an interface has a program's filter.
func hasFilter(program string, ifindex int) bool {
	filters, err := netlink.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: ifindex}}, netlink.HANDLE_MIN_INGRESS)
	return err == nil && slices.ContainsFunc(filters, func(f netlink.Filter) bool {
		bpf, ok := f.(*netlink.BpfFilter)
		return ok && bpf.Handle == filterHandle && bpf.Priority == priorityOf(program) && bpf.Name == program
	})
}

// Is tells whether the policy of a number is in the tables as it should be, whole and with nothing else; nil is one that lets everything pass.
func (p *Policies) Is(id PolicyID, policy *Policy) (bool, error) {
	switch {
	case policy == nil || policy.admitsAll():
		return id == PolicyNone, nil
	case len(policy.Rules) == 0:
		return id == PolicyClosed, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.read(); err != nil {
		return false, err
	}
	want, err := compile(*policy)
	if err != nil {
		return id == PolicyClosed, nil // it cannot be written
	}
	have, ok := p.policies[id]
	return ok && have.digest() == want.digest(), nil
}

// IDs are the numbers of the policies in the tables.
func (p *Policies) IDs() ([]PolicyID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.read()
	var ids []PolicyID
	for id := range p.policies {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, err
}

// Strays is how many backends are in the table that no Service has: a process that died while it deleted one leaves them.
func (s *Services) Strays() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	strays, err := s.strays()
	return len(strays), err
}

func (s *Services) strays() ([]backendKey, error) {
	entries, err := s.services.List()
	if err != nil {
		return nil, err
	}
	counts := map[uint32]uint32{}
	for _, entry := range entries {
		counts[entry.id] = entry.count
	}
	backends, err := s.backends.List()
	if err != nil {
		return nil, err
	}
	var strays []backendKey
	for key := range backends {
		if key.slot >= counts[key.service] {
			strays = append(strays, key)
		}
	}
	return strays, nil
}

// sweep deletes, once, the backends that no Service has.
func (s *Services) sweep() error {
	if s.swept {
		return nil
	}
	strays, err := s.strays()
	errs := []error{err}
	for _, key := range strays {
		errs = append(errs, s.backends.Delete(key))
	}
	err = errors.Join(errs...)
	s.swept = err == nil
	return err
}
