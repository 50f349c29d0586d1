package attachment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

// Pod is the Pod a container is the sandbox of.
type Pod struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
}

// String is namespace/name, for people.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// is tells whether it is the Pod that a runtime names; old ones give no UID.
func (p Pod) is(named Pod) bool {
	return p.Namespace == named.Namespace && p.Name == named.Name && (named.UID == "" || p.UID == named.UID)
}

// Interface is what a NetworkInterface and its Subnet say about a NIC, copied when it is attached so that it works while
// the API server does not.
type Interface struct {
	// Name and UID of the NetworkInterface. Another UID is another interface.
	Name string    `json:"name"`
	UID  types.UID `json:"uid"`
	// Pod is the one that holds the interface.
	Pod Pod `json:"pod"`
	// VPCID and VNI are the numeric identities of its VPC and Subnet.
	VPCID uint32 `json:"vpcID"`
	VNI   uint32 `json:"vni"`
	// Prefix is the interface's address in its Subnet, with the Subnet's prefix length.
	Prefix netip.Prefix `json:"prefix"`
	// MAC of the interface.
	MAC string `json:"mac"`
	// Gateway and GatewayMAC are the Subnet's.
	Gateway    netip.Addr `json:"gateway"`
	GatewayMAC string     `json:"gatewayMAC"`
	// Infrastructure is the address that Kubernetes sees; the interface's own in the default Subnet.
	Infrastructure netip.Addr `json:"infrastructure"`
	// Platform lets the interface open connections to infrastructure addresses.
	Platform bool `json:"platform,omitempty"`
	// SourceDestCheck drops what the interface sends from another address than its own.
	SourceDestCheck bool `json:"sourceDestCheck"`
}

// Record is one attachment of a container to an interface.
type Record struct {
	// ContainerID and IfName are the attachment's identity (CNI specification).
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifName"`
	// Network is the name of the network configuration list it was attached by; empty when an older plugin did not tell.
	Network string `json:"network,omitempty"`
	// Netns is the path of the container's network namespace.
	Netns string `json:"netns"`
	// HostLink is the name of the host's end of the veth pair.
	HostLink string `json:"hostLink"`
	// Interface is what is attached.
	Interface Interface `json:"interface"`
	// Ports are the host's that lead to the container.
	Ports []protocol.PortMapping `json:"ports,omitempty"`
	// Sequence orders the attachments of one interface: the highest has the traffic. A new sandbox of a Pod is attached
	// before the old one is detached.
	Sequence uint64 `json:"sequence"`
	// Complete is set when everything is programmed, before the runtime is told.
	Complete bool `json:"complete"`
}

// Key is the attachment's identity.
func (r Record) Key() string { return protocol.Key(r.ContainerID, r.IfName) }

const recordSuffix = ".json"

// Store is the records of a node, in memory and on disk. It is safe for concurrent use.
type Store struct {
	dir     string
	mu      sync.RWMutex
	records map[string]Record
	last    uint64
}

// OpenStore reads the records in dir, which it makes when it is missing. Files that a crash left unfinished or a power cut
// damaged are removed: nothing they speak of has survived it.
func OpenStore(dir string, log *slog.Logger) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder of attachments: %w", err)
	}
	s := &Store{dir: dir, records: map[string]Record{}}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("folder of attachments: %w", err)
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") || !strings.HasSuffix(entry.Name(), recordSuffix) {
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var r Record
		if err := json.Unmarshal(data, &r); err != nil {
			log.Warn("remove a damaged record of an attachment", "path", path, "error", err)
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		s.records[r.Key()] = r
		s.last = max(s.last, r.Sequence)
	}
	return s, nil
}

// List returns the records in the order they were made.
func (s *Store) List() []Record {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Values(s.records), func(a, b Record) int {
		return int(int64(a.Sequence) - int64(b.Sequence))
	})
}

// Get returns the record of a key.
func (s *Store) Get(key string) (Record, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r, ok := s.records[key]
	return r, ok
}

// reserve gives a new record its sequence and a link name that no other record has, and saves it.
func (s *Store) reserve(r Record) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := map[string]bool{}
	for _, other := range s.records {
		taken[other.HostLink] = true
	}
	for attempt := 0; ; attempt++ {
		if r.HostLink = linkName(r.Key(), attempt); !taken[r.HostLink] {
			break
		}
	}
	s.last++
	r.Sequence = s.last
	return r, s.save(r)
}

// complete marks a record as programmed.
func (s *Store) complete(r Record) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Complete = true
	return r, s.save(r)
}

func (s *Store) save(r Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Renamed, so that a crash leaves the old or the new one, but not synced: no attachment outlives a power cut.
	temporary := filepath.Join(s.dir, "."+r.Key())
	if err = os.WriteFile(temporary, data, 0o600); err == nil {
		err = os.Rename(temporary, s.path(r.Key()))
	}
	if err != nil {
		return fmt.Errorf("record of attachment %s: %w", r.Key(), err)
	}
	s.records[r.Key()] = r
	return nil
}

// remove forgets an attachment. Removing what is not there is a success.
func (s *Store) remove(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(s.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record of attachment %s: %w", key, err)
	}
	delete(s.records, key)
	return nil
}

func (s *Store) path(key string) string { return filepath.Join(s.dir, key+recordSuffix) }
