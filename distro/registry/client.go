package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// ErrUnauthorized is the answer to missing or wrong credentials, and to what a user may not do.
var ErrUnauthorized = errors.New("the registry wants a user name and password that may do this")

// Client is how to reach a registry.
type Client struct {
	Endpoint
	// PlainHTTP is for tests on loopback.
	PlainHTTP bool
	// Username and Password are for HTTP Basic; none when empty. A registry without authentication ignores them.
	Username, Password string
}

// Transport makes an HTTP transport that trusts CAFile. It never goes through a proxy: the registry is on this machine.
func (c Client) Transport() (*http.Transport, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.ResponseHeaderTimeout = 2 * time.Minute
	if c.CAFile == "" {
		return transport, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("registry's certificate authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("registry's certificate authority: %s holds no PEM certificate", c.CAFile)
	}
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	return transport, nil
}

// URL is the address of path on the registry.
func (c Client) URL(path string) string {
	scheme := "https"
	if c.PlainHTTP {
		scheme = "http"
	}
	return (&url.URL{Scheme: scheme, Host: c.Address, Path: path}).String()
}

// Healthy asks the registry for its health.
func (c Client) Healthy(ctx context.Context) error {
	return c.do(ctx, http.MethodGet, c.URL(HealthPath), nil)
}

// Collect runs a garbage collection; see CollectPath.
func (c Client) Collect(ctx context.Context, untagged bool) (Collected, error) {
	address := c.URL(CollectPath)
	if untagged {
		address += "?untagged=true"
	}
	var result Collected
	err := c.do(ctx, http.MethodPost, address, &result)
	return result, err
}

func (c Client) do(ctx context.Context, method, address string, into any) error {
	transport, err := c.Transport()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return err
	}
	if c.Username != "" {
		request.SetBasicAuth(c.Username, c.Password)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	if response.StatusCode == http.StatusUnauthorized {
		return ErrUnauthorized
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("registry: %s %s: %s: %s", method, address, response.Status, strings.TrimSpace(string(body)))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}
