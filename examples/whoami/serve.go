package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// identity is who answers. The cloud sets MNI_ADDRESS, MNI_VPC and MNI_SUBNET in every Container.
type identity struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Node    string `json:"node,omitempty"`
	VPC     string `json:"vpc,omitempty"`
	Subnet  string `json:"subnet,omitempty"`
	// Client is who asked, address and port as they arrived here.
	Client string `json:"client,omitempty"`
}

// identify reads the identity from the environment. The name is the host name unless MNI_NAME says otherwise.
func identify(getenv func(string) string) identity {
	who := identity{
		Name: getenv("MNI_NAME"), Address: getenv("MNI_ADDRESS"), Node: getenv("MNI_NODE"),
		VPC: getenv("MNI_VPC"), Subnet: getenv("MNI_SUBNET"),
	}
	if who.Name == "" {
		who.Name, _ = os.Hostname()
	}
	return who
}

// text is the identity as lines of "key: value"; absent values are left out.
func (w identity) text() string {
	out := ""
	for _, field := range []struct{ key, value string }{
		{"name", w.Name}, {"address", w.Address}, {"node", w.Node}, {"vpc", w.VPC}, {"subnet", w.Subnet}, {"client", w.Client},
	} {
		if field.value != "" {
			out += field.key + ": " + field.value + "\n"
		}
	}
	return out
}

// serve answers on address, TCP and UDP, until ctx is done. It notes each HTTP request in log.
func serve(ctx context.Context, address string, who identity, log io.Writer) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", listener.Addr().String())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	fmt.Fprintf(log, "%s answers on %s\n", who.Name, listener.Addr())
	server := &http.Server{Handler: handler(who, log), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()
	go func() { ended <- echo(packets, who) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(stop), packets.Close())
}

func handler(who identity, log io.Writer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /json", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(who.to(r))
	})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(log, "%s %s from %s\n", r.Method, r.URL.Path, r.RemoteAddr)
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, who.to(r).text())
	})
	return mux
}

func (w identity) to(r *http.Request) identity {
	w.Client = r.RemoteAddr
	return w
}

// echo answers each datagram with "NAME ADDRESS " and its own content.
func echo(packets net.PacketConn, who identity) error {
	buffer := make([]byte, 65535)
	prefix := []byte(who.Name + " " + who.Address + " ")
	for {
		n, from, err := packets.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		// An answer that cannot be sent is a datagram lost, which is what the asker will see.
		_, _ = packets.WriteTo(append(prefix[:len(prefix):len(prefix)], buffer[:n]...), from)
	}
}
