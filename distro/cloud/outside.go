package cloud

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/underlay"
	"github.com/mnicloud/mnicloud/network/routing"
)

// noChoice is how the owner takes a choice back.
const noChoice = "default"

// outside is what the owner chooses now, on what was chosen before.
func (w Wanted) outside(before instance.Outside) (instance.Outside, error) {
	now, err := ParseOutside(w.Pool, w.Peer)
	if w.Pool == "" {
		now.Pool = before.Pool
	}
	if w.Peer == "" {
		now.Peer = before.Peer
	}
	return now, err
}

// ParseOutside reads a choice of external addresses and router; what is empty or "default" is zero.
func ParseOutside(pool, peer string) (instance.Outside, error) {
	var o instance.Outside
	var err error
	if pool != "" && pool != noChoice {
		if o.Pool, err = instance.ParsePool(pool, routing.Reserved()); err != nil {
			return o, err
		}
	}
	if peer != "" && peer != noChoice {
		o.Peer, err = instance.ParsePeer(peer)
	}
	return o, err
}

// face is where the owner has the API served now, on what was chosen before.
func (w Wanted) face(before instance.Face) (instance.Face, error) {
	switch {
	case w.API == noChoice && w.Cert == "" && w.Key == "":
		return instance.Face{}, nil
	case w.API == "" && w.Cert == "" && w.Key == "":
		return before, nil
	case w.API == "" && before.Address.IsValid():
		w.API = before.Address.String()
	case w.API == "" || w.API == noChoice:
		return instance.Face{}, errors.New("--api-cert and --api-key are for the address that --api ADDRESS:PORT names")
	}
	files := []string{w.Cert, w.Key}
	for i, file := range files {
		if file == "" {
			continue
		}
		var err error
		if files[i], err = filepath.Abs(file); err != nil {
			return instance.Face{}, err
		}
	}
	return instance.ParseFace(w.API, files[0], files[1])
}

// checkPool refuses external addresses to which the machine has a route of its own.
func (c Cloud) checkPool(pool netip.Prefix) error {
	prefixes, err := underlay.MachinePrefixes(c.Instance)
	if err != nil {
		return err
	}
	if _, theirs, found := instance.Conflict([]netip.Prefix{pool}, prefixes); found {
		return fmt.Errorf("the machine has a route to %s, which overlaps the external addresses %s of instance %q: choose others with --pool CIDR",
			theirs, pool, c.Instance.Name)
	}
	return nil
}
