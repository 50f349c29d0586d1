// Command mni-cni is the CNI plugin of mNi Cloud; container runtimes run it (see network/plugin). Called by the name
// loopback, it is the plugin of that name.
package main

import (
	"os"
	"path/filepath"

	"github.com/mnicloud/mnicloud/network/plugin"
	"github.com/mnicloud/mnicloud/network/plugin/loopback"
)

func main() {
	if filepath.Base(os.Args[0]) == loopback.Type {
		loopback.Main()
		return
	}
	plugin.Main()
}
