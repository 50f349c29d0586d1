package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// Probe is how a part's readiness is seen: a URL that answers 2xx, or a Unix socket that accepts.
type Probe struct {
	// URL is asked with GET. CA verifies an https server, Cert and Key identify us; all are PEM files.
	URL  string `json:"url,omitempty"`
	CA   string `json:"ca,omitempty"`
	Cert string `json:"cert,omitempty"`
	Key  string `json:"key,omitempty"`
	// Socket is the path of a Unix socket.
	Socket string `json:"socket,omitempty"`
}

// Check asks once; nil means ready.
func (p *Probe) Check(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if p.Socket != "" {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", p.Socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	transport, err := p.transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode/100 != 2 {
		body, _ := io.ReadAll(io.LimitReader(answer.Body, 200))
		return fmt.Errorf("%s answers %s: %s", p.URL, answer.Status, body)
	}
	return nil
}

func (p *Probe) transport() (*http.Transport, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	if p.CA == "" {
		return transport, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	pem, err := os.ReadFile(p.CA)
	if err != nil {
		return nil, err
	}
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, errors.New(p.CA + " holds no certificate")
	}
	if p.Cert != "" {
		pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport.TLSClientConfig = config
	return transport, nil
}

// wait asks until the part is ready or the context ends.
func (p *Probe) wait(ctx context.Context) error {
	interval := 100 * time.Millisecond
	for {
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		err := p.Check(attempt)
		cancel()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
		interval = min(interval*5/4, time.Second)
	}
}
