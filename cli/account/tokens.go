package account

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Scope is what an API token may do of what its User may: all of it, or only in one tenant, or only what a role may.
type Scope struct {
	Tenant string `json:"tenant,omitempty"`
	Role   string `json:"role,omitempty"`
}

// APIToken is an API token, without its text.
type APIToken struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Scope
	// ServiceAccount is the one of Tenant that it is of, which CreatedBy made it of; empty for a User's.
	ServiceAccount string    `json:"serviceAccount,omitempty"`
	CreatedBy      string    `json:"createdBy,omitempty"`
	Expires        time.Time `json:"expires"`
}

// ServiceAccount names one of a tenant, or all of them where it has no name.
type ServiceAccount struct{ Tenant, Name string }

// query says whose tokens a request is about; nil: those of who is logged in.
func (s *ServiceAccount) query() string {
	if s == nil {
		return ""
	}
	values := url.Values{"tenant": {s.Tenant}}
	if s.Name != "" {
		values.Set("serviceAccount", s.Name)
	}
	return "?" + values.Encode()
}

// APITokens lists the API tokens of who is logged in, or those of service accounts.
func (c *Client) APITokens(ctx context.Context, access string, of *ServiceAccount) ([]APIToken, error) {
	var list struct {
		Tokens []APIToken `json:"tokens"`
	}
	_, err := c.call(ctx, http.MethodGet, "/tokens"+of.query(), access, nil, &list)
	return list.Tokens, err
}

// CreateAPIToken makes an API token that lasts for so long; its text is returned this once.
func (c *Client) CreateAPIToken(ctx context.Context, access, name string, life time.Duration, scope Scope) (text string, token APIToken, err error) {
	return c.createToken(ctx, access, tokenForm{Name: name, ExpirationSeconds: int64(life / time.Second), Scope: scope})
}

// CreateServiceAccountToken is CreateAPIToken for a service account.
func (c *Client) CreateServiceAccountToken(ctx context.Context, access, name string, life time.Duration, of ServiceAccount) (text string, token APIToken, err error) {
	return c.createToken(ctx, access, tokenForm{
		Name: name, ExpirationSeconds: int64(life / time.Second), Scope: Scope{Tenant: of.Tenant}, ServiceAccount: of.Name,
	})
}

type tokenForm struct {
	Name              string `json:"name"`
	ExpirationSeconds int64  `json:"expirationSeconds"`
	Scope
	ServiceAccount string `json:"serviceAccount,omitempty"`
}

func (c *Client) createToken(ctx context.Context, access string, form tokenForm) (text string, token APIToken, err error) {
	var made struct {
		APIToken
		Text string `json:"token"`
	}
	_, err = c.call(ctx, http.MethodPost, "/tokens", access, form, &made)
	return made.Text, made.APIToken, err
}

// RevokeAPIToken ends an API token of who is logged in, or of a service account.
func (c *Client) RevokeAPIToken(ctx context.Context, access, id string, of *ServiceAccount) error {
	_, err := c.call(ctx, http.MethodDelete, "/tokens/"+url.PathEscape(id)+of.query(), access, nil, nil)
	return err
}
