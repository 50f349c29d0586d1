package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mnicloud/mnicloud/distro/instance"
)

// How long certificates are good for. One is renewed when less than a third of its life is left.
const (
	AuthorityLife   = 10 * 365 * 24 * time.Hour
	CertificateLife = 365 * 24 * time.Hour
)

// Authority is a certificate authority, or which one signs a certificate.
type Authority string

// The authorities of an instance.
const (
	// Cluster signs the servers and clients of the Kubernetes API and of the registry.
	Cluster Authority = "ca"
	// Etcd signs etcd's server, its peers and its clients.
	Etcd Authority = "etcd-ca"
	// FrontProxy signs the API server's client certificate for aggregated API servers.
	FrontProxy Authority = "front-proxy-ca"
)

// Authorities lists all authorities.
func Authorities() []Authority { return []Authority{Cluster, Etcd, FrontProxy} }

// Request describes a certificate that must exist.
type Request struct {
	// Name is the base name of the files NAME.crt and NAME.key.
	Name string
	// Dir is where they are.
	Dir string
	// Authority signs it.
	Authority Authority
	// User becomes the subject's common name, Groups its organizations, as Kubernetes reads them.
	User   string
	Groups []string
	// Server asks for a serving certificate with the names and addresses; Client for a client's.
	Server, Client bool
	Names          []string
	Addresses      []netip.Addr
}

// CertFile is the path of the certificate, KeyFile of its private key, both PEM.
func (r Request) CertFile() string { return filepath.Join(r.Dir, r.Name+".crt") }

// KeyFile is the path of the private key.
func (r Request) KeyFile() string { return filepath.Join(r.Dir, r.Name+".key") }

// Store is the folder with the authorities.
type Store struct {
	Dir string
	// Now is time.Now, or a test's clock.
	Now func() time.Time
}

// CertFile is the path of an authority's certificate.
func (s Store) CertFile(a Authority) string { return filepath.Join(s.Dir, string(a)+".crt") }

// Ensure makes what is missing, renews what is old or no longer as requested, and returns the names of the certificates
// it wrote. An authority that must be renewed takes all its certificates with it.
func (s Store) Ensure(requests []Request) (written []string, err error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of certificates: %w", err)
	}
	signers := map[Authority]*signer{}
	for _, a := range Authorities() {
		signer, made, err := s.authority(a)
		if err != nil {
			return written, err
		}
		if made {
			written = append(written, string(a))
		}
		signers[a] = signer
	}
	for _, r := range requests {
		signer, ok := signers[r.Authority]
		if !ok {
			return written, fmt.Errorf("certificate %q asks for the unknown authority %q", r.Name, r.Authority)
		}
		made, err := s.certificate(r, signer)
		if err != nil {
			return written, fmt.Errorf("certificate %q: %w", r.Name, err)
		}
		if made {
			written = append(written, r.Name)
		}
	}
	return written, nil
}

type signer struct {
	cert *x509.Certificate
	key  crypto.Signer
}

func (s Store) authority(a Authority) (*signer, bool, error) {
	certFile, keyFile := s.CertFile(a), filepath.Join(s.Dir, string(a)+".key")
	cert, key, err := readPair(certFile, keyFile)
	if err != nil {
		return nil, false, fmt.Errorf("authority %q: %w", a, err)
	}
	if cert != nil && !s.old(cert) {
		return &signer{cert, key}, false, nil
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "mni-" + string(a)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	s.validity(template, AuthorityLife)
	newKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, false, err
	}
	made := &signer{cert: template, key: newKey}
	if made.cert, err = sign(template, newKey, made); err != nil {
		return nil, false, err
	}
	return made, true, writePair(certFile, keyFile, made.cert, newKey)
}

func (s Store) certificate(r Request, by *signer) (bool, error) {
	cert, _, err := readPair(r.CertFile(), r.KeyFile())
	if err != nil {
		return false, err
	}
	template := r.template()
	if cert != nil && !s.old(cert) && same(cert, template) && cert.CheckSignatureFrom(by.cert) == nil {
		return false, nil
	}
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return false, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return false, err
	}
	s.validity(template, CertificateLife)
	if cert, err = sign(template, key, by); err != nil {
		return false, err
	}
	return true, writePair(r.CertFile(), r.KeyFile(), cert, key)
}

func (r Request) template() *x509.Certificate {
	t := &x509.Certificate{
		Subject:  pkix.Name{CommonName: r.User, Organization: r.Groups},
		KeyUsage: x509.KeyUsageDigitalSignature,
		DNSNames: r.Names,
	}
	if r.Server {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	for _, a := range r.Addresses {
		t.IPAddresses = append(t.IPAddresses, a.AsSlice())
	}
	return t
}

// old says that less than a third of the certificate's life is left.
func (s Store) old(cert *x509.Certificate) bool {
	third := cert.NotAfter.Sub(cert.NotBefore) / 3
	return s.Now().After(cert.NotAfter.Add(-third))
}

// validity starts an hour ago: clocks of a machine and its guests differ.
func (s Store) validity(t *x509.Certificate, life time.Duration) {
	t.NotBefore = s.Now().Add(-time.Hour)
	t.NotAfter = s.Now().Add(life)
}

func same(have, want *x509.Certificate) bool {
	addresses := func(c *x509.Certificate) []string {
		var out []string
		for _, ip := range c.IPAddresses {
			out = append(out, ip.String())
		}
		slices.Sort(out)
		return out
	}
	sorted := func(in []string) []string { return slices.Sorted(slices.Values(in)) }
	return have.Subject.CommonName == want.Subject.CommonName &&
		slices.Equal(sorted(have.Subject.Organization), sorted(want.Subject.Organization)) &&
		slices.Equal(sorted(have.DNSNames), sorted(want.DNSNames)) &&
		slices.Equal(addresses(have), addresses(want)) &&
		slices.Equal(have.ExtKeyUsage, want.ExtKeyUsage)
}

func sign(template *x509.Certificate, key crypto.Signer, by *signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// readPair returns nothing, and no error, when a file is missing or the pair does not belong together: a start that was
// cut off between two writes is repaired by making both anew.
func readPair(certFile, keyFile string) (*x509.Certificate, crypto.Signer, error) {
	certPEM, err := os.ReadFile(certFile)
	if err == nil {
		var keyPEM []byte
		if keyPEM, err = os.ReadFile(keyFile); err == nil {
			cert, key, _ := parsePair(certPEM, keyPEM)
			return cert, key, nil
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	return nil, nil, err
}

// parsePair reads a pair; ok is false when it is none.
func parsePair(certPEM, keyPEM []byte) (cert *x509.Certificate, key crypto.Signer, ok bool) {
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, nil, false
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, nil, false
	}
	parsed, err := x509.ParsePKCS8PrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, nil, false
	}
	ec, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !ec.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, false
	}
	return cert, ec, true
}

func writePair(certFile, keyFile string, cert *x509.Certificate, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := instance.WriteFile(keyFile, keyPEM, 0o600); err != nil {
		return err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	return instance.WriteFile(certFile, certPEM, 0o644)
}
