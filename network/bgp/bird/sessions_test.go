package bird

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// answer is what BIRD 2.0.12 says of two peers, cut to what is of interest.
const answer = `Name       Proto      Table      State  Since         Info
device1    Device     ---        up     2026-11-29 23:36:42  

aggregates Static     master4    up     2026-11-29 23:36:42  
  Channel ipv4
    State:          UP
    Routes:         2 imported, 0 exported, 2 preferred

peer-edge.a BGP        ---        up     2026-11-29 23:36:44  Established   
  BGP state:          Established
    Neighbor address: 198.19.64.254
    Neighbor AS:      64513
    Hostname: edge
    Hold timer:       64.070/90
    Last error:       Socket: Connection closed
  Channel ipv4
    State:          UP
    Receive limit:  1000
      Action:       block
    Routes:         1 imported, 3 filtered, 2 exported, 0 preferred
    Route change stats:     received   rejected   filtered    ignored   accepted
      Import updates:              7          0          0          0          0
    BGP Next hop:   198.19.64.2

peer-gone  BGP        ---        start  2026-11-29 23:40:00  Active        Socket: Connection refused
  BGP state:          Active
    Neighbor address: 198.19.64.253
    Neighbor AS:      64514
    Connect delay:    0.810/1
    Last error:       Socket: Connection refused
  Channel ipv4
    State:          DOWN

peer-off   BGP        ---        down   2026-11-29 23:40:00  
`

func TestSessionsAreReadFromBIRDsAnswer(t *testing.T) {
	at := func(s string) time.Time {
		when, err := time.Parse(timeLayout, s)
		require.NoError(t, err)
		return when
	}
	require.Equal(t, []Session{
		{Peer: "edge.a", State: Established, Since: at("2026-11-29 23:36:44"), Sent: 2, Received: 4},
		{Peer: "gone", State: "Active", Since: at("2026-11-29 23:40:00"), LastError: "Socket: Connection refused"},
		{Peer: "off", State: "Idle", Since: at("2026-11-29 23:40:00")},
	}, parseSessions(strings.Split(answer, "\n"), time.UTC))
}

func FuzzNoAnswerConfusesTheReader(f *testing.F) {
	f.Add(answer)
	f.Add("peer-a BGP --- up 2026-11-29 23:36:44 Established\n  Routes: -1 exported, 99999999999999999999 imported\n")
	f.Add("peer- BGP --- up 2026-11-29 23:36:44\n\n :\n  ::\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range parseSessions(strings.Split(text, "\n"), time.UTC) {
			require.NotEmpty(t, s.Peer)
			require.NotEmpty(t, s.State)
			require.GreaterOrEqual(t, s.Sent, 0)
			require.GreaterOrEqual(t, s.Received, 0)
		}
	})
}

func FuzzNoStreamConfusesTheControlSocket(f *testing.F) {
	f.Add("0001 BIRD 2.0.12 ready.\n")
	f.Add("1002-peer-a BGP\n 1006-x\n0000 \n")
	f.Add("9001 syntax error\n")
	f.Add("0000")
	f.Fuzz(func(t *testing.T, stream string) {
		lines, err := readAnswer(bufio.NewScanner(strings.NewReader(stream)))
		if err != nil {
			require.Empty(t, lines)
		}
	})
}

func TestAnswersWithErrorCodesAreErrors(t *testing.T) {
	_, err := readAnswer(bufio.NewScanner(strings.NewReader("0002-Reading configuration from x\n8002 x:3:1 syntax error\n")))
	require.EqualError(t, err, "x:3:1 syntax error")
	_, err = readAnswer(bufio.NewScanner(strings.NewReader("1002-half\n")))
	require.ErrorContains(t, err, "cut off")
	_, err = readAnswer(bufio.NewScanner(strings.NewReader("hello\n")))
	require.ErrorContains(t, err, "without a code")
	lines, err := readAnswer(bufio.NewScanner(strings.NewReader("1002-a\n b\n1006-  c\n0000 \nmore")))
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "  c", ""}, lines)
}
