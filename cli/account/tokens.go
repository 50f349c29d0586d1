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
	Expires time.Time `json:"expires"`
}

// APITokens lists the API tokens of who is logged in.
func (c *Client) APITokens(ctx context.Context, access string) ([]APIToken, error) {
	var list struct {
		Tokens []APIToken `json:"tokens"`
	}
	_, err := c.call(ctx, http.MethodGet, "/tokens", access, nil, &list)
	return list.Tokens, err
}

// CreateAPIToken makes an API token that lasts for so long; its text is returned this once.
func (c *Client) CreateAPIToken(ctx context.Context, access, name string, life time.Duration, scope Scope) (text string, token APIToken, err error) {
	form := struct {
		Name              string `json:"name"`
		ExpirationSeconds int64  `json:"expirationSeconds"`
		Scope
	}{name, int64(life / time.Second), scope}
	var made struct {
		APIToken
		Text string `json:"token"`
	}
	_, err = c.call(ctx, http.MethodPost, "/tokens", access, form, &made)
	return made.Text, made.APIToken, err
}

// RevokeAPIToken ends an API token.
func (c *Client) RevokeAPIToken(ctx context.Context, access, id string) error {
	_, err := c.call(ctx, http.MethodDelete, "/tokens/"+url.PathEscape(id), access, nil, nil)
	return err
}
