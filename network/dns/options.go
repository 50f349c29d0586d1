package dns

import (
	"errors"
	"net/netip"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// port is that of DNS (RFC 1035).
const port = 53

// Options configure a resolver.
type Options struct {
	// Kubeconfig is the path of the API server's client configuration.
	Kubeconfig string
	// File keeps what is known, for the next start; its folder is made.
	File string
	// ResolvConf lists, as resolv.conf(5), the resolvers for names outside; none when empty.
	ResolvConf string
	// MetricsAddress is where /metrics, /healthz and /readyz are served; nowhere when empty.
	MetricsAddress string
	// Listen is where questions are answered; default netv1.ResolverAddress, port 53.
	Listen netip.AddrPort
}

// complete fills defaults in and says what is missing or wrong.
func (o *Options) complete() error {
	if !o.Listen.IsValid() {
		o.Listen = netip.AddrPortFrom(netip.MustParseAddr(netv1.ResolverAddress), port)
	}
	var errs []error
	if o.Kubeconfig == "" {
		errs = append(errs, errors.New("--kubeconfig is missing"))
	}
	if o.File == "" {
		errs = append(errs, errors.New("--file is missing: name a file for what is known at the next start"))
	}
	return errors.Join(errs...)
}
