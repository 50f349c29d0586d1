package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestANodesTableHasRoomForAFlowOnEachPortOfAnAddress(t *testing.T) {
	few := Options{Flows: minFlows}
	require.GreaterOrEqual(t, int(few.natEntries()), 4*allPorts)
	few.HostOnly = true
	require.EqualValues(t, 2*minFlows, few.natEntries(), "nothing leaves from a host without Pods")
	many := Options{Flows: 4 * defaultFlows}
	require.EqualValues(t, 8*defaultFlows, many.natEntries())
}
