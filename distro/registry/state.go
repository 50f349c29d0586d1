package registry

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/pki"
)

// State is the registry's directory in an instance's state: data/ (blobs and manifests), htpasswd (users; it exists while
// authentication is on) and credentials.json (the cloud's own accounts).
type State struct{ Dir string }

// StateOf is the registry's state of an instance.
func StateOf(i instance.Instance) State { return State{Dir: filepath.Join(i.StateDir(), "registry")} }

// DataDir is where distribution's storage is.
func (s State) DataDir() string { return filepath.Join(s.Dir, "data") }

// HTPasswdFile holds the users. It exists while authentication is on.
func (s State) HTPasswdFile() string { return filepath.Join(s.Dir, "htpasswd") }

// Credentials are the passwords of the cloud's own accounts.
type Credentials struct {
	// Machine is MachineUser's password.
	Machine string `json:"machine"`
	// Node is NodeUser's password.
	Node string `json:"node"`
}

// Credentials reads the passwords of the cloud's own accounts, and makes them the first time.
func (s State) Credentials() (Credentials, error) {
	path := filepath.Join(s.Dir, "credentials.json")
	content, err := os.ReadFile(path)
	if err == nil {
		var credentials Credentials
		if err := json.Unmarshal(content, &credentials); err != nil {
			return Credentials{}, fmt.Errorf("%s: %w", path, err)
		}
		return credentials, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Credentials{}, err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return Credentials{}, err
	}
	// Two starts at once must agree on one file.
	unlock, err := instance.Lock(filepath.Join(s.Dir, "lock"))
	if err != nil {
		return Credentials{}, err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return s.Credentials()
	}
	credentials := Credentials{Machine: rand.Text(), Node: rand.Text()}
	if content, err = json.MarshalIndent(credentials, "", "  "); err != nil {
		return Credentials{}, err
	}
	return credentials, instance.WriteFile(path, append(content, '\n'), 0o600)
}

// Endpoint says where a registry is.
type Endpoint struct {
	// Address is host:port.
	Address string
	// CAFile is the certificate authority that signed the registry's certificate, in PEM; the system's when empty.
	CAFile string
}

// EndpointOf is where the registry of an instance is, as the machine sees it.
func EndpointOf(i instance.Instance) Endpoint {
	return Endpoint{
		Address: net.JoinHostPort(i.Addresses().Machine.String(), strconv.Itoa(Port)),
		CAFile:  pki.Store{Dir: i.PKIDir()}.CertFile(pki.Cluster),
	}
}

// Client is the machine owner's access: MachineUser at an endpoint.
func (s State) Client(at Endpoint) (Client, error) {
	credentials, err := s.Credentials()
	if err != nil {
		return Client{}, err
	}
	return Client{Endpoint: at, Username: MachineUser, Password: credentials.Machine}, nil
}

// ClientOf is the machine owner's access to the registry of an instance.
func ClientOf(i instance.Instance) (Client, error) { return StateOf(i).Client(EndpointOf(i)) }

// Find is the instance of a name, which must have been started once.
func Find(name string) (instance.Instance, error) {
	found, ok, err := instance.Registry{Dir: instance.StateRoot}.Find(name)
	if err == nil && ok {
		ok = started(found.PKIDir()) // the default instance is known without ever having been started
	}
	if err == nil && !ok {
		err = fmt.Errorf("no cloud named %q on this machine: start it with `mni up --instance %s`, or name another with --instance", name, name)
	}
	return found, err
}

// started says that an instance with this folder of certificates was started once. A folder that cannot be looked at counts.
func started(pkiDir string) bool {
	_, err := os.Stat(pkiDir)
	return !errors.Is(err, fs.ErrNotExist)
}
