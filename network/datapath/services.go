package datapath

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"
)

// ServiceKey is what clients connect to.
type ServiceKey struct {
	VPCID    uint32
	Address  netip.Addr
	Port     uint16
	Protocol Protocol
}

// Backend is one of those that answer.
type Backend struct {
	Address netip.Addr
	Port    uint16
}

// Service is a virtual address balanced over backends. One without backends drops what is sent to it, with a reason.
type Service struct {
	Backends []Backend
	// Affinity keeps a client at its backend until it has been idle for so long; 0 means none.
	Affinity time.Duration
}

// Services is the table of Services and, by slot, of their backends. It is safe for concurrent use.
type Services struct {
	services  *Table[ServiceKey, serviceEntry, bpfServiceKey, bpfService]
	backends  *Table[backendKey, Backend, bpfBackendKey, bpfBackend]
	conntrack *Conntrack

	mu     sync.Mutex
	lastID uint32
	// swept tells that what a process before left of Services that are no more is deleted.
	swept bool
}

type serviceEntry struct{ id, count, affinity uint32 }

type backendKey struct{ service, slot uint32 }

func newServices(services, backends *ebpf.Map, conntrack *Conntrack) *Services {
	return &Services{
		services:  newTable(services, bpfMapServices, serviceKeyCodec(), serviceCodec()),
		backends:  newTable(backends, bpfMapBackends, backendKeyCodec(), backendCodec()),
		conntrack: conntrack,
	}
}

// Set creates or changes a Service. Packets meet the old set of backends or the new one, never an empty slot. Flows of
// UDP to a backend that was removed are forgotten; those of TCP go on until the backend closes them.
func (s *Services) Set(key ServiceKey, service Service) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, exists, err := s.services.Get(key)
	if err != nil {
		return err
	}
	if !exists {
		if entry.id, err = s.newID(); err != nil {
			return err
		}
	}
	_, err = s.set(key, service, entry, exists)
	return err
}

// set writes what differs and says whether anything did.
func (s *Services) set(key ServiceKey, service Service, entry serviceEntry, exists bool) (bool, error) {
	old, err := s.backendsOf(entry)
	if err != nil {
		return false, err
	}
	changed := !exists
	slots, removed := placeBackends(old, service.Backends)
	for slot, backend := range slots {
		if slot < len(old) && old[slot] == backend {
			continue
		}
		changed = true
		if err := s.backends.Set(backendKey{entry.id, uint32(slot)}, backend); err != nil {
			return true, err
		}
	}
	updated := serviceEntry{id: entry.id, count: uint32(len(slots)), affinity: uint32(service.Affinity / time.Second)}
	if !exists || updated != entry {
		changed = true
		if err := s.services.Set(key, updated); err != nil {
			return true, err
		}
	}
	for slot := len(slots); slot < len(old); slot++ {
		if err := s.backends.Delete(backendKey{entry.id, uint32(slot)}); err != nil {
			return true, err
		}
	}
	if len(removed) > 0 && key.Protocol == UDP {
		return changed, s.conntrack.forget(key, func(b Backend) bool { return slices.Contains(removed, b) })
	}
	return changed, nil
}

// placeBackends arranges desired backends in slots so that those that stay keep theirs, and says which of the old go.
func placeBackends(old, desired []Backend) (slots, removed []Backend) {
	wanted := map[Backend]bool{}
	for _, backend := range desired {
		wanted[backend] = true
	}
	slots = make([]Backend, len(wanted))
	placed := map[Backend]bool{}
	for slot, backend := range old {
		switch {
		case !wanted[backend]:
			removed = append(removed, backend)
		case slot < len(slots) && !placed[backend]:
			slots[slot], placed[backend] = backend, true
		}
	}
	slot := 0
	for _, backend := range desired {
		if placed[backend] {
			continue
		}
		placed[backend] = true
		for slots[slot] != (Backend{}) {
			slot++
		}
		slots[slot] = backend
	}
	return slots, removed
}

// Delete removes a Service and forgets its flows of UDP. That there is none is no error.
func (s *Services) Delete(key ServiceKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, exists, err := s.services.Get(key)
	if err != nil || !exists {
		return err
	}
	return s.delete(key, entry)
}

func (s *Services) delete(key ServiceKey, entry serviceEntry) error {
	if err := s.services.Delete(key); err != nil {
		return err
	}
	for slot := range entry.count {
		if err := s.backends.Delete(backendKey{entry.id, slot}); err != nil {
			return err
		}
	}
	if key.Protocol == UDP {
		return s.conntrack.forget(key, func(Backend) bool { return true })
	}
	return nil
}

// List returns all Services.
func (s *Services) List() (map[ServiceKey]Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := s.services.List()
	if err != nil {
		return nil, err
	}
	services := map[ServiceKey]Service{}
	for key, entry := range entries {
		backends, err := s.backendsOf(entry)
		if err != nil {
			return nil, err
		}
		services[key] = Service{Backends: backends, Affinity: time.Duration(entry.affinity) * time.Second}
	}
	return services, nil
}

// Sync makes the Services what is desired and returns how many were changed, created or deleted. It goes on after an error.
func (s *Services) Sync(desired map[ServiceKey]Service) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := s.services.List()
	if err != nil {
		return 0, err
	}
	var changes int
	var errs []error
	for key, service := range desired {
		entry, exists := entries[key]
		if !exists {
			if entry.id, err = s.newID(); err != nil {
				return changes, err
			}
		}
		changed, err := s.set(key, service, entry, exists)
		if changed {
			changes++
		}
		errs = append(errs, err)
	}
	for key, entry := range entries {
		if _, ok := desired[key]; !ok {
			changes++
			errs = append(errs, s.delete(key, entry))
		}
	}
	return changes, errors.Join(append(errs, s.sweep())...)
}

// forgetRemoved forgets the flows of UDP to backends that their Service does not have, and those of Services that are no more.
func (s *Services) forgetRemoved() error {
	services, err := s.List()
	if err != nil {
		return err
	}
	return s.conntrack.each(func(key bpfConntrackKey, entry bpfConntrack) error {
		at := addrPort(entry.Service, entry.ServicePort)
		service := services[ServiceKey{key.VpcId, at.Addr(), at.Port(), Protocol(key.Protocol)}]
		backend := Backend{Address: fromAddress(entry.Backend), Port: networkPort(entry.BackendPort)}
		if Protocol(key.Protocol) != UDP || slices.Contains(service.Backends, backend) {
			return nil
		}
		return s.conntrack.delete(key)
	})
}

// backendsOf are a Service's backends by slot. In a slot that is empty, as none ever should be, is the zero Backend.
func (s *Services) backendsOf(entry serviceEntry) ([]Backend, error) {
	backends := make([]Backend, 0, entry.count)
	for slot := range entry.count {
		backend, _, err := s.backends.Get(backendKey{entry.id, slot})
		if err != nil {
			return nil, err
		}
		backends = append(backends, backend)
	}
	return backends, nil
}

// newID returns an identity above all in use.
func (s *Services) newID() (uint32, error) {
	if s.lastID == 0 {
		entries, err := s.services.List()
		if err != nil {
			return 0, err
		}
		for _, entry := range entries {
			s.lastID = max(s.lastID, entry.id)
		}
	}
	s.lastID++
	return s.lastID, nil
}

func serviceKeyCodec() codec[ServiceKey, bpfServiceKey] {
	return codec[ServiceKey, bpfServiceKey]{
		encode: func(k ServiceKey) (bpfServiceKey, error) {
			return bpfServiceKey{
				Address: toAddress(k.Address), VpcId: k.VPCID, Port: networkPort(k.Port), Protocol: uint8(k.Protocol),
			}, requireIPv4("address", k.Address)
		},
		decode: func(w bpfServiceKey) ServiceKey {
			return ServiceKey{
				VPCID: w.VpcId, Address: fromAddress(w.Address), Port: networkPort(w.Port), Protocol: Protocol(w.Protocol),
			}
		},
	}
}

func serviceCodec() codec[serviceEntry, bpfService] {
	return codec[serviceEntry, bpfService]{
		encode: func(e serviceEntry) (bpfService, error) {
			return bpfService{Id: e.id, Count: e.count, Affinity: e.affinity}, nil
		},
		decode: func(w bpfService) serviceEntry { return serviceEntry{id: w.Id, count: w.Count, affinity: w.Affinity} },
	}
}

func backendKeyCodec() codec[backendKey, bpfBackendKey] {
	return codec[backendKey, bpfBackendKey]{
		encode: func(k backendKey) (bpfBackendKey, error) {
			return bpfBackendKey{Service: k.service, Slot: k.slot}, nil
		},
		decode: func(w bpfBackendKey) backendKey { return backendKey{service: w.Service, slot: w.Slot} },
	}
}

func backendCodec() codec[Backend, bpfBackend] {
	return codec[Backend, bpfBackend]{
		encode: func(b Backend) (bpfBackend, error) {
			return bpfBackend{Address: toAddress(b.Address), Port: networkPort(b.Port)}, requireIPv4("backend", b.Address)
		},
		decode: func(w bpfBackend) Backend {
			return Backend{Address: fromAddress(w.Address), Port: networkPort(w.Port)}
		},
	}
}
