package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mnicloud/mnicloud/network/daemon/desired"
	"github.com/mnicloud/mnicloud/test/documented"
)

func TestEveryMetricIsDocumentedAndEveryDocumentedMetricExists(t *testing.T) {
	m := newMetrics("node-1")
	m.observe(&programmer{attached: map[string]desired.Attachment{}}, health{ready: func() error { return nil }, synced: func() bool { return true }})
	documented.Metrics(t, "mni-netd", m.registry)
	_, err := m.registry.Gather()
	require.NoError(t, err, "before anything is loaded")
}
