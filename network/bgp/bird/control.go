package bird

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Control is BIRD's control socket.
type Control struct {
	// Socket is its path.
	Socket string
}

// answerTimeout bounds one command. BIRD answers within milliseconds, unless it is stopped.
const answerTimeout = 5 * time.Second

// maxAnswer bounds an answer, in lines.
const maxAnswer = 100_000

// ask sends a command and returns the answer's lines. Answers with codes from 8000 on are errors.
// https://bird.network.cz/doc/reply_codes
func (c Control) ask(ctx context.Context, command string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("speak with BIRD: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	lines := bufio.NewScanner(conn)
	if _, err := readAnswer(lines); err != nil { // the greeting
		return nil, fmt.Errorf("speak with BIRD: %w", err)
	}
	if _, err := fmt.Fprintln(conn, command); err != nil {
		return nil, fmt.Errorf("speak with BIRD: %w", err)
	}
	answer, err := readAnswer(lines)
	if err != nil {
		return nil, fmt.Errorf("BIRD: %s: %w", command, err)
	}
	return answer, nil
}

// readAnswer reads lines "CODE-text", "CODE text" (the last) and " text" (of the code before).
func readAnswer(lines *bufio.Scanner) ([]string, error) {
	var answer, wrong []string
	failed := false
	for range maxAnswer {
		if !lines.Scan() {
			return nil, errors.Join(errors.New("the answer was cut off"), lines.Err())
		}
		line := lines.Text()
		if line == "" || line[0] == ' ' || line[0] == '+' {
			if line != "" {
				line = line[1:]
			}
			answer = append(answer, line)
			continue
		}
		if len(line) < 5 || strings.Trim(line[:4], "0123456789") != "" || (line[4] != '-' && line[4] != ' ') {
			return nil, fmt.Errorf("the answer has a line without a code: %q", line)
		}
		code, text := line[:4], line[5:]
		if code[0] >= '8' {
			failed = true
			wrong = append(wrong, text)
		} else {
			answer = append(answer, text)
		}
		if line[4] == ' ' {
			if failed {
				return nil, errors.New(strings.Join(wrong, "; "))
			}
			return answer, nil
		}
	}
	return nil, fmt.Errorf("the answer is longer than %d lines", maxAnswer)
}

// Sessions asks for all BGP sessions.
func (c Control) Sessions(ctx context.Context) ([]Session, error) {
	lines, err := c.ask(ctx, "show protocols all")
	if err != nil {
		return nil, err
	}
	return parseSessions(lines, time.Local), nil
}

// Configure makes BIRD read its configuration file anew; what is the same in it goes on undisturbed.
func (c Control) Configure(ctx context.Context) error {
	_, err := c.ask(ctx, "configure")
	return err
}

// Ping tells whether BIRD answers and works, and does not only shut down.
func (c Control) Ping(ctx context.Context) error {
	lines, err := c.ask(ctx, "show status")
	if err != nil {
		return err
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "Daemon is up") {
			return nil
		}
	}
	return errors.New("BIRD is shutting down")
}

// restart makes BIRD end so that its peers keep its routes for their restart times (RFC 4724): no Cease is sent.
func (c Control) restart(ctx context.Context) error {
	_, err := c.ask(ctx, "graceful restart")
	return err
}
