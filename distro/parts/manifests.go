package parts

import (
	"encoding/base64"
	"fmt"
	"os"

	"github.com/mnicloud/mnicloud/distro/edge"
	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/manifests"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/pki"
)

// Manifests are the values of the manifests that the instance's API server must hold. The cluster's authority must exist.
func (o Options) Manifests() (manifests.Values, error) {
	authority, err := os.ReadFile(o.store().CertFile(pki.Cluster))
	if err != nil {
		return manifests.Values{}, fmt.Errorf("read the cluster's authority: %w", err)
	}
	return manifests.Values{
		External:    o.external(),
		ClusterDNS:  o.Instance.Addresses().DNS.String(),
		DNSReplicas: min(o.Nodes, 2),
		DNSImage:    o.DNSImage,
		Forward:     len(node.Resolver()) > 0,
		WebhookURL:  "https://" + o.on(webhookPort),
		CABundle:    base64.StdEncoding.EncodeToString(authority),
	}, nil
}

// external are the external addresses, and who is told of them.
func (o Options) external() manifests.External {
	e := manifests.External{Pool: o.Outside.Pool.String(), LocalASN: instance.ASN}
	if o.Outside.Edge() {
		e.PeerName, e.PeerASN, e.PeerAddress = "edge", instance.EdgeASN, o.Instance.Addresses().Edge.String()
		e.BFDIntervalMilliseconds, e.BFDMultiplier = edge.BFDIntervalMilliseconds, edge.BFDMultiplier
		return e
	}
	// Between a node and the owner's router is the machine, and maybe more.
	e.PeerName, e.PeerASN, e.PeerAddress, e.Multihop = "router", o.Outside.Peer.ASN, o.Outside.Peer.Address.String(), peerHops
	return e
}

// peerHops is how many hops away a router of the owner's may be.
const peerHops = 8
