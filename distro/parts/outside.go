package parts

import (
	"path/filepath"
	"time"

	"github.com/mnicloud/mnicloud/distro/edge"
	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/pki"
	"github.com/mnicloud/mnicloud/distro/spawn"
	"github.com/mnicloud/mnicloud/distro/supervisor"
	"github.com/mnicloud/mnicloud/distro/underlay"
)

// edgePrefix begins the names of the edge router's parts.
const edgePrefix = "edge/"

// bgpd announces external addresses from a node.
func (o Options) bgpd(n instance.Node) spec {
	client := o.cert(nodePKI(n), "mni-bgpd")
	kubeconfig := o.nodeKubeconfig(n, "mni-bgpd", client)
	s := o.nodePart(n, Bgpd, "mni-bgpd", "--kubeconfig="+kubeconfig.Path, "--node-name="+n.Name(),
		"--run-dir="+bgpdRunDir, "--metrics-address="+onNode(n, 9443))
	s.files, s.certs = []File{kubeconfig}, []pki.Request{client}
	s.Env = []string{"GOMEMLIMIT=64MiB"}
	s.Place.Nice = firstServed                              // so is BIRD, which it starts: BFD gives either side 0.9 s, however busy the machine is
	s.After = []string{Manifests, n.Name() + "/" + Kubelet} // which makes the Node
	s.Ready = &supervisor.Probe{URL: "http://" + onNode(n, 9443) + "/readyz"}
	return s
}

// edge is the edge router.
func (o Options) edge() []spec {
	place := spawn.Place{Netns: underlay.NetnsPath(o.Instance.EdgeNetns()), Cgroup: SystemCgroup(o.Instance), Nice: firstServed}
	var all []spec
	for i, d := range edge.Daemons(o.Instance) {
		s := spec{binary: filepath.Join(edge.BinDir, d.Name), Part: supervisor.Part{
			Name: edgePrefix + d.Name, Command: d.Command, Place: place, Ready: &supervisor.Probe{Socket: d.Socket}, StopTimeout: 5 * time.Second,
		}}
		if i > 0 {
			s.After = []string{all[0].Name}
		}
		s.files = []File{{Path: o.config("edge.conf"), Content: edge.Config(o.Instance)}}
		all = append(all, s)
	}
	return all
}
