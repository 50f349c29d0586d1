package bird

import (
	"strconv"
	"strings"
	"time"
)

// Session is a BGP session as BIRD tells of it.
type Session struct {
	// Peer is the peer's name in the Config.
	Peer string
	// State of RFC 4271's machine (Established). BIRD's own Down and Close are Idle.
	State string
	// Since is when the session came up or began to try, in whole seconds.
	Since time.Time
	// Sent and Received count routes.
	Sent, Received int
	// LastError is what ended the last session or kept it from coming up; empty while it is up.
	LastError string
}

// Established is the State of a session that is up.
const Established = "Established"

// timeLayout is BIRD's `timeformat protocol iso long`.
const timeLayout = "2006-01-02 15:04:05"

// parseSessions reads the answer to `show protocols all`: a line of columns for each protocol, with details indented below it.
// What it does not understand it leaves out. Times are in the given zone.
func parseSessions(lines []string, zone *time.Location) []Session {
	var all []Session
	var current *Session
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if line[0] != ' ' {
			current = nil
			if s, ok := parseProtocol(line, zone); ok {
				all = append(all, s)
				current = &all[len(all)-1]
			}
			continue
		}
		if current != nil {
			current.detail(strings.TrimSpace(line))
		}
	}
	for i := range all {
		if all[i].State == Established {
			all[i].LastError = ""
		}
	}
	return all
}

// parseProtocol reads "peer-edge  BGP  ---  up  2026-11-29 23:36:44  Established".
func parseProtocol(line string, zone *time.Location) (s Session, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[1] != "BGP" {
		return s, false
	}
	if s.Peer, ok = strings.CutPrefix(fields[0], protocolPrefix); !ok || s.Peer == "" {
		return s, false
	}
	since, err := time.ParseInLocation(timeLayout, fields[4]+" "+fields[5], zone)
	if err != nil {
		return s, false
	}
	s.Since, s.State = since, "Idle"
	if len(fields) > 6 {
		s.State = stateOf(fields[6])
	}
	return s, true
}

func stateOf(word string) string {
	switch word {
	case "Connect", "Active", "OpenSent", "OpenConfirm", Established:
		return word
	}
	return "Idle"
}

func (s *Session) detail(line string) {
	key, value, ok := strings.Cut(line, ":")
	if !ok {
		return
	}
	value = strings.TrimSpace(value)
	switch key {
	case "BGP state":
		s.State = stateOf(value)
	case "Last error":
		s.LastError = value
	case "Routes":
		for part := range strings.SplitSeq(value, ",") {
			number, what, _ := strings.Cut(strings.TrimSpace(part), " ")
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 {
				continue
			}
			switch what {
			case "exported":
				s.Sent = n
			case "imported", "filtered":
				s.Received += n
			}
		}
	}
}
