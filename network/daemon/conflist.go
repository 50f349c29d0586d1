package daemon

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/mnicloud/mnicloud/network/plugin"
	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

// The network configuration list is of the oldest version that current runtimes are sure to read: containerd 1.6 knows 1.0.0
// only. The plugin speaks 1.1.0 too.
const (
	cniVersion  = "1.0.0"
	networkName = "mni"
)

// writeConflist tells the container runtime about the plugin, which makes the node Ready. A file that is right already is not
// touched.
func writeConflist(path, socket, queueDir string) error {
	data, err := json.MarshalIndent(map[string]any{
		"cniVersion": cniVersion,
		"name":       networkName,
		"plugins": []any{map[string]any{
			"type": plugin.Type, "socket": socket, "queueDir": queueDir, "capabilities": map[string]bool{"portMappings": true},
		}},
	}, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return protocol.WriteFile(path, data, 0o644)
}
