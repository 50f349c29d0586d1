package controller

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/mnicloud/mnicloud/kit/status"
	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/ipam"
)

// Metrics about the network's objects, beside those of controller-runtime. The names in them are the network's own: a tenant's object
// has its UID for a name here. docs/howto/network.md lists all of them.
var (
	vpcInfo = prometheus.NewDesc("mni_vpc_info",
		"1, with the name of the VPC whose numeric identity is the label vpc.", []string{"vpc", "name"}, nil)
	subnetInfo = prometheus.NewDesc("mni_subnet_info",
		"1, with the name and the range of the Subnet whose VNI is the label subnet.", []string{"subnet", "vpc", "name", "cidr"}, nil)
	subnetAddresses = prometheus.NewDesc("mni_subnet_addresses",
		"How many interfaces a Subnet has room for.", []string{"subnet", "vpc"}, nil)
	subnetLeases = prometheus.NewDesc("mni_subnet_leases",
		"IPLeases of a Subnet: held by an interface, or released (nobody gets the address yet).", []string{"subnet", "vpc", "state"}, nil)
	objectsByPhase = prometheus.NewDesc("mni_network_objects",
		"Objects of net.mnicloud.jp by kind and phase.", []string{"kind", "phase"}, nil)
)

// collector counts objects in the manager's cache when it is asked.
type collector struct{ reader client.Reader }

// addMetrics serves the collector's metrics with the manager's while the manager runs.
func addMetrics(mgr manager.Manager) error {
	c := collector{mgr.GetClient()}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if err := ctrlmetrics.Registry.Register(c); err != nil {
			return fmt.Errorf("register the network's metrics: %w", err)
		}
		<-ctx.Done()
		ctrlmetrics.Registry.Unregister(c)
		return nil
	}))
}

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{vpcInfo, subnetInfo, subnetAddresses, subnetLeases, objectsByPhase} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	var vpcs netv1.VPCList
	var subnets netv1.SubnetList
	var interfaces netv1.NetworkInterfaceList
	var leases netv1.IPLeaseList
	for _, list := range []client.ObjectList{&vpcs, &subnets, &interfaces, &leases} {
		// The cache is in this process and synced: nothing waits.
		if err := c.reader.List(context.Background(), list, client.UnsafeDisableDeepCopy); err != nil {
			ch <- prometheus.NewInvalidMetric(objectsByPhase, err)
			return
		}
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	phases := map[[2]string]int{}
	count := func(kind string, phase status.Phase) { phases[[2]string{kind, string(phase)}]++ }
	for i := range vpcs.Items {
		v := &vpcs.Items[i]
		count("VPC", v.Status.Phase)
		if v.Status.ID != 0 {
			gauge(vpcInfo, 1, number(v.Status.ID), v.Name)
		}
	}
	for i := range interfaces.Items {
		count("NetworkInterface", interfaces.Items[i].Status.Phase)
	}
	states := leaseStates(leases.Items)
	for i := range subnets.Items {
		s := &subnets.Items[i]
		count("Subnet", s.Status.Phase)
		if s.Status.VNI == 0 {
			continue
		}
		labels := []string{number(s.Status.VNI), number(s.Status.VPCID)}
		gauge(subnetInfo, 1, append(labels, s.Name, s.Spec.CIDR)...)
		if cidr, err := netip.ParsePrefix(s.Spec.CIDR); err == nil {
			gauge(subnetAddresses, float64(ipam.Range{CIDR: cidr}.Capacity()), labels...)
		}
		gauge(subnetLeases, float64(states[s.Name].held), append(labels, "held")...)
		gauge(subnetLeases, float64(states[s.Name].released), append(labels, "released")...)
	}
	for key, n := range phases {
		gauge(objectsByPhase, float64(n), key[0], key[1])
	}
}

type leaseCount struct{ held, released int }

// leaseStates counts leases by their Subnet's name.
func leaseStates(leases []netv1.IPLease) map[string]leaseCount {
	counts := map[string]leaseCount{}
	for i := range leases {
		c := counts[leases[i].Spec.Subnet]
		if leases[i].Spec.ReleasedAt == nil {
			c.held++
		} else {
			c.released++
		}
		counts[leases[i].Spec.Subnet] = c
	}
	return counts
}

func number(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
