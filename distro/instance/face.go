package instance

import (
	"crypto/tls"
	"fmt"
	"net/netip"
)

// Face is where users find the cloud's API beside the machine's underlay address. Its zero value is nowhere.
type Face struct {
	// Address is what it listens on.
	Address netip.AddrPort `json:"address,omitzero"`
	// Cert and Key are the paths of a certificate for it, and of its private key, PEM. Empty: the cloud's own authority signs one.
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
}

// ParseFace reads ADDRESS:PORT, and looks whether the certificate and the key, if there are, belong together.
func ParseFace(address, cert, key string) (Face, error) {
	at, err := netip.ParseAddrPort(address)
	switch {
	case err != nil || at.Port() == 0:
		return Face{}, fmt.Errorf("--api %q: write it as ADDRESS:PORT, such as 192.0.2.10:443 or 0.0.0.0:443", address)
	case at.Addr().IsMulticast() || at.Addr().Zone() != "":
		return Face{}, fmt.Errorf("--api %q: %s is not an address that a server can have", address, at.Addr())
	case (cert == "") != (key == ""):
		return Face{}, fmt.Errorf("--api-cert and --api-key belong together: give both, or none")
	case cert == "" && at.Addr().IsUnspecified():
		return Face{}, fmt.Errorf("--api %s: the cloud's own authority signs certificates for one address: name it, or give a certificate with --api-cert and --api-key", address)
	case cert != "":
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			return Face{}, fmt.Errorf("--api-cert %s, --api-key %s: %w", cert, key, err)
		}
	}
	return Face{Address: at, Cert: cert, Key: key}, nil
}
