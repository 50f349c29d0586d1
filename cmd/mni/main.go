// Command mni is the command line of mNi Cloud, for its tenants and for the machine's owner.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/mnicloud/mnicloud/cli"
	"github.com/mnicloud/mnicloud/distro/commands"
	"github.com/mnicloud/mnicloud/distro/host"
	"github.com/mnicloud/mnicloud/distro/images"
	"github.com/mnicloud/mnicloud/distro/registry"
	"github.com/mnicloud/mnicloud/kit/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := cli.New(version.String(), commands.Members, genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	cli.CallAs(root, os.Args[0])
	// The machine owner's commands, one line for each room that has some: cli.AddOwnerCommands(root, room.Commands()...).
	cli.AddOwnerCommands(root, commands.Commands()...)
	commands.AddPartLogs(root)
	cli.AddOwnerCommands(root, host.Command())
	cli.AddOwnerCommands(root, images.Command(), registry.Command())
	code := cli.Execute(ctx, root, os.Args[1:])
	stop()
	os.Exit(code)
}
