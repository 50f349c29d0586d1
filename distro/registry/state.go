package registry

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// StateRoot is where the instances' states are.
const StateRoot = "/var/lib/mni"

// State is the registry's directory in an instance's state: data/ (blobs and manifests), htpasswd (users, if
// authentication is on), credentials.json (the cloud's own accounts) and client.json (where the registry is).
type State struct{ Dir string }

// StateOf is the registry's state of an instance in StateRoot.
func StateOf(instance string) State {
	return State{Dir: filepath.Join(StateRoot, instance, "registry")}
}

// DataDir is Config.DataDir.
func (s State) DataDir() string { return filepath.Join(s.Dir, "data") }

// HTPasswdFile is Config.HTPasswdFile. It exists when authentication is on.
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
	var credentials Credentials
	err := readJSON(path, &credentials)
	if !errors.Is(err, fs.ErrNotExist) {
		return credentials, err
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return Credentials{}, err
	}
	credentials = Credentials{Machine: rand.Text(), Node: rand.Text()}
	return credentials, writeJSON(path, credentials, 0o600)
}

// Endpoint says where an instance's registry is.
type Endpoint struct {
	// Address is host:port.
	Address string `json:"address"`
	// CAFile is the certificate authority that signed the registry's certificate, in PEM.
	CAFile string `json:"caFile"`
}

// SetEndpoint records where the registry is, for Client.
func (s State) SetEndpoint(endpoint Endpoint) error {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	return writeJSON(filepath.Join(s.Dir, "client.json"), endpoint, 0o600)
}

// Client is the machine owner's access to the registry: its endpoint and MachineUser.
func (s State) Client() (Client, error) {
	var endpoint Endpoint
	err := readJSON(filepath.Join(s.Dir, "client.json"), &endpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return Client{}, fmt.Errorf("no cloud has its registry in %s: start one with `mni up`, or name another with --instance", s.Dir)
	}
	if err != nil {
		return Client{}, err
	}
	credentials, err := s.Credentials()
	if err != nil {
		return Client{}, err
	}
	return Client{Address: endpoint.Address, CAFile: endpoint.CAFile, Username: MachineUser, Password: credentials.Machine}, nil
}

func readJSON(path string, into any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, value any, mode fs.FileMode) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return writeFileAtomically(path, append(content, '\n'), mode)
}
