package commands

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/distro/cloud"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func aReport() report {
	return report{
		Status: supervisor.Status{Parts: []supervisor.PartStatus{
			{Name: "etcd", State: supervisor.Ready, Since: now.Add(-90 * time.Minute), Restarts: 2, MemoryBytes: 100 << 20},
			{Name: "manifests", State: supervisor.Done},
		}},
		Nodes: []cloud.NodeStatus{{Name: "node-1", Ready: true, Since: now.Add(-time.Hour)}, {Name: "node-2", Ready: true, Since: now.Add(-time.Minute)}},
	}
}

func TestStatusIsOneLineAPartAndANode(t *testing.T) {
	var out bytes.Buffer
	r := aReport()
	r.Parts[1] = supervisor.PartStatus{Name: "node-1/kubelet", State: supervisor.BackOff, Message: "exit status 1"}
	r.Nodes[1] = cloud.NodeStatus{Name: "node-2", Since: now.Add(-time.Minute), Message: "Kubelet stopped posting node status."}
	require.NoError(t, printStatus(&out, r, now))
	require.Equal(t, `PART             STATE     RESTARTS   AGE   MEMORY    MESSAGE
etcd             Ready     2          90m   100 MiB   
node-1/kubelet   BackOff   0          -     -         exit status 1

NODE     READY   AGE   MESSAGE
node-1   yes     60m   
node-2   no      60s   Kubelet stopped posting node status.

2 parts, 100 MiB; 1 of 2 nodes ready
`, out.String())
}

func TestStatusIsToldWithoutTheAPIServerToo(t *testing.T) {
	var out bytes.Buffer
	r := aReport()
	r.Nodes, r.NodesUnknown = nil, "the API server does not say how the nodes are: connection refused"
	require.NoError(t, printStatus(&out, r, now))
	require.Equal(t, `PART        STATE   RESTARTS   AGE   MEMORY    MESSAGE
etcd        Ready   2          90m   100 MiB   
manifests   Done    0          -     -         

Nodes: the API server does not say how the nodes are: connection refused

2 parts, 100 MiB
`, out.String())
	require.EqualError(t, r.problem(), r.NodesUnknown)
}

func TestStatusFailsWhenAPartOrANodeIsNotReady(t *testing.T) {
	require.NoError(t, aReport().problem())
	for want, change := range map[string]func(*report){
		"not ready: node node-2": func(r *report) { r.Nodes[1].Ready = false },
		"not ready: etcd, node node-1, node node-2": func(r *report) {
			r.Parts[0].State, r.Nodes[0].Ready, r.Nodes[1].Ready = supervisor.BackOff, false, false
		},
		"not ready: manifests":                  func(r *report) { r.Parts[1].State = supervisor.Starting },
		"not ready: the cloud has no parts yet": func(r *report) { r.Parts = nil },
	} {
		r := aReport()
		change(&r)
		require.EqualError(t, r.problem(), want)
	}
}

func TestStatusForProgramsSaysTheSame(t *testing.T) {
	for name, format := range map[string]struct {
		print func(*bytes.Buffer, report) error
		parse func([]byte, any) error
	}{
		"json": {func(b *bytes.Buffer, r report) error { return printJSON(b, r) }, json.Unmarshal},
		"yaml": {func(b *bytes.Buffer, r report) error { return printYAML(b, r) }, func(text []byte, v any) error { return yaml.UnmarshalStrict(text, v) }},
	} {
		var out bytes.Buffer
		require.NoError(t, format.print(&out, aReport()), name)
		var back report
		require.NoError(t, format.parse(out.Bytes(), &back), name)
		require.Equal(t, aReport(), back, name)
	}
}
