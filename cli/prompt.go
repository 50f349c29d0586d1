package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// terminal is the descriptor of the terminal that standard input is, if it is one.
func (c *connection) terminal() (fd int, ok bool) {
	file, isFile := c.streams.In.(*os.File)
	if !isFile {
		return 0, false
	}
	fd = int(file.Fd())
	return fd, term.IsTerminal(fd)
}

// ask asks for a line on the terminal.
func (c *connection) ask(ctx context.Context, question string) (string, error) {
	fmt.Fprint(c.streams.ErrOut, question)
	return interruptible(ctx, func() (string, error) {
		line, err := bufio.NewReader(c.streams.In).ReadString('\n')
		return strings.TrimSpace(line), err
	})
}

// askSecret asks for a line that is not shown.
func (c *connection) askSecret(ctx context.Context, fd int, question string) (string, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return "", err
	}
	defer func() {
		_ = term.Restore(fd, before)
		fmt.Fprintln(c.streams.ErrOut)
	}()
	fmt.Fprint(c.streams.ErrOut, question)
	return interruptible(ctx, func() (string, error) {
		secret, err := term.ReadPassword(fd)
		return string(secret), err
	})
}

// interruptible reads until the context ends. A read that has begun goes on, to no effect.
func interruptible(ctx context.Context, read func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		text, err := read()
		answers <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case a := <-answers:
		return a.text, a.err
	}
}

// readToken reads an API token, the one line of standard input.
func (c *connection) readToken() (string, error) {
	text, err := io.ReadAll(io.LimitReader(c.streams.In, maxSecrets))
	if err != nil {
		return "", fmt.Errorf("%s: %w", standardInput, err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", usagef("--token-stdin: standard input must be the token, a line, and nothing else")
	}
	return token, nil
}

// maxSecrets is how much of standard input may be passwords, in bytes.
const maxSecrets = 4 << 10

// readSecrets reads that many lines of standard input, one secret each; the last may lack its end.
func (c *connection) readSecrets(n int) ([]string, error) {
	text, err := io.ReadAll(io.LimitReader(c.streams.In, maxSecrets+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", standardInput, err)
	}
	if len(text) > maxSecrets {
		return nil, errors.New("--password-stdin: standard input is too long for a password")
	}
	lines := strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n"), "\n")
	if len(lines) != n || lines[0] == "" {
		want := "the password, a line"
		if n > 1 {
			want = "the present password and the new one, a line each"
		}
		return nil, usagef("--password-stdin: standard input must be %s, and nothing else", want)
	}
	return lines, nil
}
