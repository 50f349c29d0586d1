// Command mni-cni is the CNI plugin of mNi Cloud; container runtimes run it (see network/plugin).
package main

import "github.com/mnicloud/mnicloud/network/plugin"

func main() { plugin.Main() }
