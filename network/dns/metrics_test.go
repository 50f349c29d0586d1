package dns

import (
	"testing"

	"github.com/mnicloud/mnicloud/test/documented"
)

func TestEveryMetricIsDocumented(t *testing.T) {
	documented.Metrics(t, "mni-dns", newMetrics().registry)
}
