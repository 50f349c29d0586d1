package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// ErrUnreachable wraps every failure to get an answer: the daemon is down, died in the middle or does not answer in time.
// What it did is unknown.
var ErrUnreachable = errors.New("the node's network daemon does not answer")

// Call sends one request to the daemon and returns its answer. An error is ErrUnreachable; the daemon's own refusals are in
// Response.Error.
func Call(socket string, request Request, timeout time.Duration) (*Response, error) {
	request.Version = Version
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return nil, fmt.Errorf("%w: send to %s: %w", ErrUnreachable, socket, err)
	}
	var response Response
	if err := json.NewDecoder(conn).Decode(&response); err != nil {
		return nil, fmt.Errorf("%w: receive from %s: %w", ErrUnreachable, socket, err)
	}
	if response.Version != Version {
		return nil, fmt.Errorf("%w: it speaks version %d of the plugin's protocol, the plugin version %d; install the plugin that came with the daemon",
			ErrUnreachable, response.Version, Version)
	}
	return &response, nil
}
