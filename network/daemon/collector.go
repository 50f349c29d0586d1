package daemon

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"

	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/network/datapath"
)

// Labels of metrics about interfaces. Namespace and Pod are named by tenants, but there are no more of them than attachments on this
// node, and they go with those. The VPC is its numeric identity, the Subnet its VNI: they are known without the API server, and
// mni_vpc_info and mni_subnet_info of the network controller have their names.
var (
	interfaceLabels = []string{"interface", "namespace", "pod", "vpc", "subnet"}
	dropLabels      = append([]string{"reason"}, interfaceLabels...)
)

var (
	sentPackets = prometheus.NewDesc("mni_interface_sent_packets_total",
		"Packets that an interface sent, dropped ones included; a segmented one counts once.", interfaceLabels, nil)
	sentBytes = prometheus.NewDesc("mni_interface_sent_bytes_total",
		"Bytes that an interface sent, with Ethernet headers.", interfaceLabels, nil)
	deliveredPackets = prometheus.NewDesc("mni_interface_delivered_packets_total",
		"Packets that were delivered to an interface.", interfaceLabels, nil)
	deliveredBytes = prometheus.NewDesc("mni_interface_delivered_bytes_total",
		"Bytes that were delivered to an interface, with Ethernet headers.", interfaceLabels, nil)
	dropPackets = prometheus.NewDesc("mni_drop_packets_total",
		"Packets the datapath dropped, by reason and by the NetworkInterface (or host, vxlan, uplink) whose program dropped them.", dropLabels, nil)
	dropBytes = prometheus.NewDesc("mni_drop_bytes_total", "Bytes of the packets the datapath dropped.", dropLabels, nil)

	mapEntries    = prometheus.NewDesc("mni_map_entries", "Entries of a map of the datapath.", []string{"map"}, nil)
	mapMaxEntries = prometheus.NewDesc("mni_map_max_entries", "How many entries a map of the datapath can have.", []string{"map"}, nil)

	closedInterfaces = prometheus.NewDesc("mni_netd_closed_interfaces", "Interfaces that are closed because their policies could not be written.", nil, nil)
	attachments      = prometheus.NewDesc("mni_netd_attachments", "Containers that are attached.", nil, nil)
	datapathInfo     = prometheus.NewDesc("mni_netd_datapath_info", "1, with how programs are attached: tcx or clsact.", []string{"mode"}, nil)
)

// collector reads the datapath's counters. Only the interfaces of this node have any.
type collector struct{ programmer *programmer }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		sentPackets, sentBytes, deliveredPackets, deliveredBytes, dropPackets, dropBytes, mapEntries, mapMaxEntries,
		closedInterfaces, attachments, datapathInfo,
	} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	counts, err := c.programmer.counts()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(dropPackets, err)
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(closedInterfaces, float64(c.programmer.closed()))
	gauge(attachments, float64(len(counts.attachments)))
	if counts.mode == "" {
		return // nothing is loaded yet
	}
	gauge(datapathInfo, 1, string(counts.mode))
	for name, fill := range counts.fills {
		gauge(mapEntries, float64(fill.Entries), name)
		gauge(mapMaxEntries, float64(fill.Max), name)
	}
	pair := func(packets, bytes *prometheus.Desc, count datapath.Count, labels ...string) {
		ch <- prometheus.MustNewConstMetric(packets, prometheus.CounterValue, float64(count.Packets), labels...)
		ch <- prometheus.MustNewConstMetric(bytes, prometheus.CounterValue, float64(count.Bytes), labels...)
	}
	for ifindex, a := range counts.attachments {
		labels := labelsOf(a)
		pair(deliveredPackets, deliveredBytes, counts.delivered[ifindex], labels...)
		if sent, ok := counts.sent[ifindex]; ok {
			pair(sentPackets, sentBytes, sent, labels...)
		}
	}
	for key, count := range counts.drops {
		labels := []string{counts.links[key.Ifindex], "", "", "", ""}
		if a, ok := counts.attachments[key.Ifindex]; ok {
			labels = labelsOf(a)
		} else if labels[0] == "" {
			continue // of an interface that has just gone
		}
		pair(dropPackets, dropBytes, count, append([]string{key.Reason.String()}, labels...)...)
	}
}

func labelsOf(a desired.Attachment) []string {
	nic := a.Interface
	vpc, subnet := strconv.FormatUint(uint64(nic.VPCID), 10), strconv.FormatUint(uint64(nic.VNI), 10)
	return []string{nic.Name, nic.Pod.Namespace, nic.Pod.Name, vpc, subnet}
}

// counts are what the datapath counts and whose it is.
type counts struct {
	mode  datapath.Mode // empty while nothing is loaded
	drops map[datapath.DropKey]datapath.Count
	// sent and delivered are by the ifindex of the host side, like attachments.
	sent, delivered map[int]datapath.Count
	attachments     map[int]desired.Attachment
	// links are the names of the other interfaces that have programs.
	links map[int]string
	fills map[string]datapath.Fill
}

func (p *programmer) counts() (counts, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := counts{attachments: map[int]desired.Attachment{}, links: p.links}
	// Of two sandboxes of one Pod, the newer one has the interface; series would meet otherwise.
	for _, a := range desired.Newest(p.list()) {
		c.attachments[a.Ifindex] = a
	}
	if p.datapath == nil {
		return c, nil
	}
	c.mode = p.datapath.Mode()
	var dropsErr, deliveredErr, fillsErr, sentErr error
	c.drops, dropsErr = p.datapath.Drops.List()
	c.delivered, deliveredErr = p.datapath.Deliveries.List()
	c.fills, fillsErr = p.datapath.Fill()
	c.sent, sentErr = received()
	return c, errors.Join(dropsErr, deliveredErr, fillsErr, sentErr)
}

// received is what the links of this namespace received, by ifindex: from a host side's view, what its interface sent.
func received() (map[int]datapath.Count, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	counts := map[int]datapath.Count{}
	for _, l := range links {
		if s := l.Attrs().Statistics; s != nil {
			counts[l.Attrs().Index] = datapath.Count{Packets: s.RxPackets, Bytes: s.RxBytes}
		}
	}
	return counts, nil
}
