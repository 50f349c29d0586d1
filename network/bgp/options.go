package bgp

import (
	"errors"
	"os/exec"
)

// Options configure a speaker.
type Options struct {
	// Kubeconfig is the path of the API server's client configuration.
	Kubeconfig string
	// NodeName is the node's name in Kubernetes.
	NodeName string
	// BIRD is the path of the program bird; when empty it is looked for on PATH.
	BIRD string
	// RunDir is a folder for BIRD's configuration and sockets, the speaker's alone and gone after a reboot.
	RunDir string
	// MetricsAddress is where /metrics, /healthz and /readyz are served; nowhere when empty.
	MetricsAddress string
}

// complete fills defaults in and says what is missing or wrong.
func (o *Options) complete() error {
	var errs []error
	require := func(ok bool, problem string) {
		if !ok {
			errs = append(errs, errors.New(problem))
		}
	}
	require(o.Kubeconfig != "", "--kubeconfig is missing")
	require(o.NodeName != "", "--node-name is missing")
	require(o.RunDir != "", "--run-dir is missing: name a folder for BIRD's sockets")
	if o.BIRD == "" {
		found, err := exec.LookPath("bird")
		require(err == nil, "--bird: the program bird is not on PATH; install BIRD 2 (Debian's package bird2)")
		o.BIRD = found
	}
	return errors.Join(errs...)
}
