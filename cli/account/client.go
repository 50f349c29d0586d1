package account

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Tokens are what the gateway gives who logs in.
type Tokens struct {
	// Access says who sends a request, until Expires.
	Access  string    `json:"access"`
	Expires time.Time `json:"expires"`
	// Refresh gets other Tokens, once, until the session ends.
	Refresh     string    `json:"refresh"`
	SessionEnds time.Time `json:"sessionEnds"`
	// MustChangePassword says that nothing else is possible before.
	MustChangePassword bool `json:"mustChangePassword,omitempty"`
}

// Identity is what the gateway tells somebody of itself.
type Identity struct {
	// User is empty for a service account, which is the one of that name of the only tenant.
	User           string `json:"user,omitempty"`
	ServiceAccount string `json:"serviceAccount,omitempty"`
	Administrator  bool   `json:"administrator,omitempty"`
	// Tenants that the User is a member of, by name.
	Tenants            []Membership `json:"tenants"`
	MustChangePassword bool         `json:"mustChangePassword,omitempty"`
	// Expires is when what it came in with ends: a session, or an API token.
	Expires time.Time `json:"expires"`
}

// Membership is a User's role in a Tenant.
type Membership struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

// Refusal is the gateway's word for why something was not done.
type Refusal struct {
	// Code is the HTTP status.
	Code int
	Why  string
}

// Error implements error.
func (r *Refusal) Error() string { return r.Why }

// Client speaks to the entrances of a gateway.
type Client struct {
	server string
	http   *http.Client
}

// requestTimeout bounds each request. A login waits for its turn at a busy gateway.
const requestTimeout = 30 * time.Second

// maxAnswer is how long an answer may be, in bytes.
const maxAnswer = 1 << 20

// NewClient is a client of the gateway at the server, as Server returns it. authority is the certificate of who signed the gateway's,
// PEM; empty means the system's authorities.
func NewClient(server, authority string) (*Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if authority != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(authority)) {
			return nil, errors.New("there is no certificate in PEM in it")
		}
	}
	return &Client{server: server, http: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true},
		Timeout:   requestTimeout,
		// What is sent here is for the gateway alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Server is the address of a gateway as it is kept: https://HOST or https://HOST:PORT. Without a scheme https is meant.
func Server(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("%q is not an address: give https://HOST:PORT", text)
	case u.Scheme != "https":
		return "", fmt.Errorf("%q: passwords and tokens go over https only: give https://HOST:PORT", text)
	case u.Hostname() == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("%q: give only scheme, host and port, as in https://HOST:PORT", u.Redacted())
	}
	return "https://" + u.Host, nil
}

// Login begins a session.
func (c *Client) Login(ctx context.Context, user, password string) (Tokens, error) {
	return c.tokens(ctx, "/login", map[string]string{"name": user, "password": password})
}

// Refresh gives other Tokens; the refresh token is good for nothing afterwards.
func (c *Client) Refresh(ctx context.Context, refresh string) (Tokens, error) {
	return c.tokens(ctx, "/refresh", map[string]string{"refresh": refresh})
}

// tokens gets Tokens, with their ends by this machine's clock.
func (c *Client) tokens(ctx context.Context, path string, form map[string]string) (Tokens, error) {
	var tokens Tokens
	header, err := c.call(ctx, http.MethodPost, path, "", form, &tokens)
	if err != nil {
		return Tokens{}, err
	}
	if now, err := http.ParseTime(header.Get("Date")); err == nil {
		ahead := time.Since(now).Truncate(time.Second)
		tokens.Expires, tokens.SessionEnds = tokens.Expires.Add(ahead), tokens.SessionEnds.Add(ahead)
	}
	return tokens, nil
}

// ChangePassword changes a User's own password. All sessions of the User end.
func (c *Client) ChangePassword(ctx context.Context, user, password, chosen string) error {
	form := map[string]string{"name": user, "password": password, "newPassword": chosen}
	_, err := c.call(ctx, http.MethodPost, "/password", "", form, nil)
	return err
}

// Logout ends the session that the access token is of.
func (c *Client) Logout(ctx context.Context, access string) error {
	_, err := c.call(ctx, http.MethodPost, "/logout", access, nil, nil)
	return err
}

// WhoAmI tells whose access token it is.
func (c *Client) WhoAmI(ctx context.Context, access string) (Identity, error) {
	var id Identity
	_, err := c.call(ctx, http.MethodGet, "/whoami", access, nil, &id)
	return id, err
}

// call sends a form, if there is one, and reads the answer.
func (c *Client) call(ctx context.Context, method, path, access string, form, into any) (http.Header, error) {
	var body io.Reader
	if form != nil {
		text, err := json.Marshal(form)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/problem+json")
	if form != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if access != "" {
		request.Header.Set("Authorization", "Bearer "+access)
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.server, err)
	}
	if answer.StatusCode/100 != 2 {
		return nil, c.refusal(answer, text)
	}
	if into == nil {
		return answer.Header, nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return nil, c.stranger(answer)
	}
	return answer.Header, nil
}

// refusal reads a problem (RFC 9457).
func (c *Client) refusal(answer *http.Response, text []byte) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(text, &problem) != nil || problem.Detail == "" {
		return c.stranger(answer)
	}
	return &Refusal{Code: answer.StatusCode, Why: problem.Detail}
}

// stranger says that what answers is no gateway.
func (c *Client) stranger(answer *http.Response) error {
	return fmt.Errorf("what answers at %s (%s) is not the API gateway of an mNi Cloud", c.server, answer.Status)
}
