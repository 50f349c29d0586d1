// Command whoami answers with its own identity, so that one sees which container an answer came from: over HTTP as text (/)
// and JSON (/json), over UDP as one line in front of what was sent. Both listen on the same port.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	port := flag.Int("port", 8080, "TCP and UDP port to answer on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := serve(ctx, fmt.Sprintf(":%d", *port), identify(os.Getenv), os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "whoami:", err)
		os.Exit(1)
	}
}
