package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// serve answers on the Unix socket until the instance has been stopped or the context ends. stopping is called first
// when it is to be stopped.
func (s *Supervisor) serve(ctx context.Context, listener net.Listener, stopping func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, r *http.Request) {
		above, _ := strconv.ParseUint(r.URL.Query().Get("above"), 10, 64)
		limited, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.Status(limited, above, r.URL.Query().Has("probe")))
	})
	mux.HandleFunc("PUT /plan", func(w http.ResponseWriter, r *http.Request) {
		var plan Plan
		if err := json.NewDecoder(r.Body).Decode(&plan); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := s.Apply(r.Context(), plan); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	mux.HandleFunc("POST /stop", func(_ http.ResponseWriter, _ *http.Request) {
		stopping()
		s.Stop()
		cancel() // the server ends after this answer
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(limited)
	}()
	if err := server.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func listen(socket string, log *slog.Logger) (net.Listener, error) {
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		log.Warn("cannot remove the old socket", "error", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(socket, 0o600)
}

// ErrNotRunning says that no supervisor answers.
var ErrNotRunning = errors.New("not running")

// Client speaks to a running supervisor.
type Client struct{ http *http.Client }

// NewClient makes a client for the supervisor that listens on the socket.
func NewClient(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status asks how the parts are, after a change above the given generation. With probe set, ready parts are asked anew.
func (c *Client) Status(ctx context.Context, above uint64, probe bool) (Status, error) {
	url := fmt.Sprintf("/status?above=%d", above)
	if probe {
		url += "&probe"
	}
	var status Status
	body, err := c.do(ctx, http.MethodGet, url, nil)
	if err != nil {
		return status, err
	}
	err = json.Unmarshal(body, &status)
	return status, err
}

// Apply hands over a plan.
func (c *Client) Apply(ctx context.Context, plan Plan) error {
	raw, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	_, err = c.do(ctx, http.MethodPut, "/plan", raw)
	return err
}

// Stop ends all parts and the supervisor, and waits until the parts have ended.
func (c *Client) Stop(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, "/stop", nil)
	return err
}

// unanswered says why a request got no answer. Who may not open the socket cannot know whether anybody listens.
func unanswered(err error) error {
	var op *net.OpError
	switch dialed := errors.As(err, &op) && op.Op == "dial"; {
	case dialed && errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("only root may ask the supervisor: run it with sudo (%w)", err)
	case dialed:
		return ErrNotRunning
	}
	return fmt.Errorf("ask the supervisor: %w", err)
}

func (c *Client) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://supervisor"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, unanswered(err)
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("ask the supervisor: %w", err)
	}
	if answer.StatusCode/100 != 2 {
		return nil, fmt.Errorf("the supervisor refuses: %s", bytes.TrimSpace(content))
	}
	return content, nil
}
