// Command mni-coredns is CoreDNS with the plugins the cloud's cluster DNS uses. It keeps CoreDNS' own flags (-conf, -dns.port).
package main

import (
	_ "github.com/coredns/caddy/onevent" // the "on" directive
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/template"
)

// directives is the order in which plugins see a query, as in CoreDNS' own plugin.cfg.
var directives = []string{
	"reload", "bind", "health", "ready", "prometheus", "errors", "log",
	"cache", "loadbalance", "template", "hosts", "kubernetes", "loop", "forward", "on",
}

func main() {
	dnsserver.Directives = directives
	coremain.Run()
}
