package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	// The plugins of CoreDNS that are used, beside our own.
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/bufsize"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	"k8s.io/apimachinery/pkg/util/wait"
)

// listenInterval is the pause between two looks whether the host has the resolver's address.
const listenInterval = 100 * time.Millisecond

// servers are the running ones, by what the Corefile calls them: CoreDNS makes plugins from text.
var servers sync.Map

// newest numbers them.
var newest atomic.Int64

func init() {
	// The order in which plugins see a question. What only one VPC may see is answered before the cache, which knows no VPCs.
	dnsserver.Directives = []string{"bind", "bufsize", "errors", pluginName, "cache", "forward"}
	dnsserver.Quiet, caddy.Quiet = true, true
	plugin.Register(pluginName, setup)
}

// setup makes our plugin for a server.
func setup(c *caddy.Controller) error {
	c.Next()
	if !c.NextArg() {
		return plugin.Error(pluginName, c.ArgErr())
	}
	found, ok := servers.Load(c.Val())
	if !ok {
		return plugin.Error(pluginName, fmt.Errorf("there is no server %s", c.Val()))
	}
	template, ok := found.(*resolver)
	if !ok {
		return plugin.Error(pluginName, fmt.Errorf("the server %s is a %T", c.Val(), found))
	}
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		return &resolver{next: next, directory: template.directory, observe: template.observe, waiting: map[netip.Addr]int{}}
	})
	return nil
}

// corefile is CoreDNS' configuration. Answers by UDP are no longer than what every path carries (DNS flag day 2020): fragments do
// not reach a workload. Without resolvers outside names are not known.
func corefile(name string, at netip.AddrPort, resolvConf string) string {
	forward := ""
	if resolvConf != "" {
		forward = fmt.Sprintf("forward . %q {\n max_concurrent 4096\n }", resolvConf)
	}
	return fmt.Sprintf(`.:%d {
 bind %s
 bufsize 1232
 errors {
  consolidate 1m ".*" warning
 }
 %s %s
 cache 300
 %s
}
`, at.Port(), at.Addr(), pluginName, name, forward)
}

// serve answers at an address until ctx ends. It waits for the host to have it; listening is called once it answers.
func serve(ctx context.Context, at netip.AddrPort, resolvConf string, r *resolver, listening func()) error {
	err := wait.PollUntilContextCancel(ctx, listenInterval, true, func(context.Context) (bool, error) { return has(at.Addr()) })
	if err != nil {
		return fmt.Errorf("wait for the address %s: %w", at.Addr(), err)
	}
	name := strconv.FormatInt(newest.Add(1), 10)
	servers.Store(name, r)
	defer servers.Delete(name)
	input := caddy.CaddyfileInput{Contents: []byte(corefile(name, at, resolvConf)), Filepath: "Corefile", ServerTypeName: "dns"}
	instance, err := caddy.Start(input)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", at, err)
	}
	listening()
	<-ctx.Done()
	return errors.Join(append(instance.ShutdownCallbacks(), instance.Stop())...)
}

// has tells whether the host has an address.
func has(address netip.Addr) (bool, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return false, fmt.Errorf("list the host's addresses: %w", err)
	}
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr() == address {
			return true, nil
		}
	}
	return false, nil
}
