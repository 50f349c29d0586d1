package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// ServiceAccountKeyFile is the private key that signs ServiceAccounts' tokens, ServiceAccountPublicFile its public half.
func (s Store) ServiceAccountKeyFile() string { return filepath.Join(s.Dir, "service-account.key") }

// ServiceAccountPublicFile is the public key that verifies ServiceAccounts' tokens.
func (s Store) ServiceAccountPublicFile() string { return filepath.Join(s.Dir, "service-account.pub") }

// EnsureServiceAccountKey makes the key pair once. It is never renewed: a new one would make every Pod's token void.
func (s Store) EnsureServiceAccountKey() error {
	if exists(s.ServiceAccountKeyFile()) && exists(s.ServiceAccountPublicFile()) {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	err = instance.WriteFile(s.ServiceAccountKeyFile(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
	if err != nil {
		return err
	}
	return instance.WriteFile(s.ServiceAccountPublicFile(), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}

// EncryptionConfigFile is the API server's EncryptionConfiguration.
func (s Store) EncryptionConfigFile() string { return filepath.Join(s.Dir, "encryption.yaml") }

// EnsureEncryptionKey makes, once, the key that Secrets are encrypted with in etcd (XSalsa20-Poly1305).
// Losing the file is losing the Secrets.
func (s Store) EnsureEncryptionKey() error {
	if exists(s.EncryptionConfigFile()) {
		return nil
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	config := fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - secretbox:
      keys:
      - name: key1
        secret: %s
  - identity: {}
`, base64.StdEncoding.EncodeToString(key))
	return instance.WriteFile(s.EncryptionConfigFile(), []byte(config), 0o600)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
