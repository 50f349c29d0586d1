package host

import (
	"github.com/spf13/cobra"

	"github.com/mnicloud/mnicloud/distro/packages"
	"github.com/mnicloud/mnicloud/distro/preflight"
)

// Command is `mni host`, with install and check under it.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "host",
		Short: "Prepare this machine for a cloud: install packages, check what is missing",
	}
	cmd.AddCommand(packages.Command(), preflight.Command())
	return cmd
}
