package protocol

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTheQueueHoldsEachDetachmentOnceAndSkipsWhatACrashLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "queue")
	queued, err := Queue(dir)
	require.NoError(t, err)
	require.Empty(t, queued, "no folder")

	request := Request{Command: Del, ContainerID: "c1", IfName: "eth0"}
	require.NoError(t, Enqueue(dir, request))
	require.NoError(t, Enqueue(dir, request))
	require.NoError(t, os.WriteFile(filepath.Join(dir, temporaryPrefix+"1"), []byte("{"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "damaged.json"), []byte("{"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "later.json"), []byte(`{"version":2}`), 0o600))
	queued, err = Queue(dir)
	require.NoError(t, err)
	require.Len(t, queued, 3)
	require.NoError(t, queued[0].Err)
	request.Version = Version
	require.Equal(t, request, queued[0].Request)
	require.ErrorContains(t, queued[1].Err, "damaged.json")
	require.ErrorContains(t, queued[2].Err, "version 2")
}

func TestAFileIsReplacedWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, WriteFile(path, []byte("old"), 0o600))
	require.NoError(t, WriteFile(path, []byte("new"), 0o644))
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(data))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o700))
	require.Error(t, WriteFile(filepath.Join(dir, "folder"), []byte("x"), 0o600))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing temporary is left")
}

func TestEveryKindOfSilenceIsUnreachable(t *testing.T) {
	for name, answer := range map[string]func(net.Conn){
		"dies in the middle":      func(c net.Conn) { c.Close() },
		"does not answer in time": func(net.Conn) {},
		"speaks another version": func(c net.Conn) {
			_ = json.NewEncoder(c).Encode(Response{Version: Version + 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "s")
			listener, err := net.Listen("unix", socket)
			require.NoError(t, err)
			defer listener.Close()
			go func() {
				if conn, err := listener.Accept(); err == nil {
					var request Request
					_ = json.NewDecoder(conn).Decode(&request)
					answer(conn)
				}
			}()
			_, err = Call(socket, Request{Command: Status}, 200*time.Millisecond)
			require.ErrorIs(t, err, ErrUnreachable)
		})
	}
	_, err := Call(filepath.Join(t.TempDir(), "none"), Request{Command: Status}, time.Second)
	require.ErrorIs(t, err, ErrUnreachable)
}
