package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	cnitypes "github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/network/daemon/attachment"
	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

// requestTimeout bounds the reading of a request; the plugin sends it at once.
const requestTimeout = 5 * time.Second

// server answers the CNI plugin on a Unix socket.
type server struct {
	attachments *attachment.Manager
	// ready is nil while Pods can be attached, otherwise it says why not.
	ready func() error
	mtu   func() int
	// observe is told how long each command took, and how it ended.
	observe func(command string, took time.Duration, err error)
	log     *slog.Logger
}

// listen makes the socket, for root only. A socket that a dead daemon left is replaced; connections wait until serve.
func listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("folder of the plugin's socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	mask := unix.Umask(0o177)
	defer unix.Umask(mask)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen for the plugin: %w", err)
	}
	// A successor may have replaced the socket by the time this daemon stops.
	listener.SetUnlinkOnClose(false)
	return listener, nil
}

// serve answers until ctx ends, then lets the requests under way finish.
func (s *server) serve(ctx context.Context, listener *net.UnixListener) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var requests sync.WaitGroup
	defer requests.Wait()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept the plugin's connection: %w", err)
		}
		requests.Go(func() {
			defer conn.Close()
			if err := s.handle(ctx, conn); err != nil {
				s.log.Warn("connection of the plugin", "error", err)
			}
		})
	}
}

// handle answers one connection. A request is cancelled when the plugin goes away: its runtime has given up.
func (s *server) handle(ctx context.Context, conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return err
	}
	var request protocol.Request
	if err := json.NewDecoder(conn).Decode(&request); err != nil {
		return fmt.Errorf("read request: %w", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		cancel(fmt.Errorf("the runtime gave up: %w", err))
	}()

	started := time.Now()
	response := protocol.Response{Version: protocol.Version}
	result, err := s.do(ctx, request)
	if err == nil && result != nil {
		response.Result, err = json.Marshal(result)
	}
	took := time.Since(started)
	s.observe(string(request.Command), took, err)
	log := s.log.With("command", request.Command, "container", request.ContainerID, "took", took)
	if err != nil {
		var cniError *cnitypes.Error
		if !errors.As(err, &cniError) {
			cniError = cnitypes.NewError(cnitypes.ErrInternal, err.Error(), "")
		}
		response.Error = cniError
		log.Warn("CNI command failed", "error", err)
	} else {
		log.Info("CNI command done")
	}
	return json.NewEncoder(conn).Encode(response)
}

// do carries out a request; only an ADD has a result.
func (s *server) do(ctx context.Context, request protocol.Request) (any, error) {
	if request.Version != protocol.Version {
		return nil, fmt.Errorf("the plugin speaks version %d of the protocol, the daemon %d; install the plugin that came with the daemon",
			request.Version, protocol.Version)
	}
	switch request.Command {
	case protocol.Add:
		if err := s.ready(); err != nil {
			return nil, protocol.TryAgain("the node's network is not ready", err)
		}
		record, err := s.attachments.Add(ctx, request)
		if err != nil {
			return nil, err
		}
		return attachment.Result(record, s.mtu()), nil
	case protocol.Check:
		return nil, s.attachments.Check(ctx, request)
	case protocol.Del:
		return nil, s.attachments.Del(ctx, request.ContainerID, request.IfName)
	case protocol.GC:
		return nil, s.attachments.GC(ctx, request.Network, request.ValidAttachments)
	case protocol.Status:
		if err := s.ready(); err != nil {
			return nil, protocol.Unavailable("the node's network is not ready", err)
		}
		return nil, nil
	default:
		return nil, fmt.Errorf("unknown command %q", request.Command)
	}
}
