package registry

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// reloadingCertificate serves a certificate from files and reads them again when they change, so that a renewed
// certificate needs no restart.
type reloadingCertificate struct {
	certFile, keyFile string

	mu       sync.Mutex
	modified time.Time
	current  *tls.Certificate
}

func (c *reloadingCertificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// get returns the certificate. While the files are being replaced (certificate and key do not match yet) it goes on with
// the one it has.
func (c *reloadingCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.certFile)
	if err == nil && c.current != nil && info.ModTime().Equal(c.modified) {
		return c.current, nil
	}
	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile); err == nil {
			c.current, c.modified = &pair, info.ModTime()
			return c.current, nil
		}
	}
	if c.current != nil {
		return c.current, nil
	}
	return nil, fmt.Errorf("registry: TLS certificate: %w", err)
}
