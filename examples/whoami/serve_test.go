package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// begin serves on a free port and returns host:port.
func begin(t *testing.T, who identity) string {
	ctx, cancel := context.WithCancel(t.Context())
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, "127.0.0.1:0", who, write) }()
	lines := bufio.NewScanner(read)
	require.True(t, lines.Scan())
	_, address, ok := strings.Cut(lines.Text(), " answers on ")
	require.True(t, ok, lines.Text())
	go func() { _, _ = io.Copy(io.Discard, read) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return address
}

func TestHTTPAnswersSayWhoAnsweredAndWhoAsked(t *testing.T) {
	env := map[string]string{"MNI_NAME": "web", "MNI_ADDRESS": "10.0.0.5", "MNI_VPC": "shop", "MNI_SUBNET": "front"}
	address := begin(t, identify(func(key string) string { return env[key] }))

	answer, err := http.Get("http://" + address + "/")
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Regexp(t, `^name: web\naddress: 10\.0\.0\.5\nvpc: shop\nsubnet: front\nclient: 127\.0\.0\.1:\d+\n$`, string(body))

	answer, err = http.Get("http://" + address + "/json")
	require.NoError(t, err)
	defer answer.Body.Close()
	var who identity
	require.NoError(t, json.NewDecoder(answer.Body).Decode(&who))
	require.Equal(t, "10.0.0.5", who.Address)
}

func TestUDPAnswersCarryTheIdentityAndTheDatagram(t *testing.T) {
	address := begin(t, identity{Name: "web", Address: "10.0.0.5"})
	connection, err := net.Dial("udp", address)
	require.NoError(t, err)
	defer connection.Close()
	_, err = connection.Write([]byte("number 7"))
	require.NoError(t, err)
	buffer := make([]byte, 100)
	n, err := connection.Read(buffer)
	require.NoError(t, err)
	require.Equal(t, "web 10.0.0.5 number 7", string(buffer[:n]))
}

func TestTheNameIsTheHostNameUnlessGiven(t *testing.T) {
	require.NotEmpty(t, identify(func(string) string { return "" }).Name)
}
