// Package plugin is the CNI plugin: it forwards what the container runtime asks (ADD, CHECK, DEL, GC, STATUS) to the node's
// daemon over a Unix socket and prints the answer. It knows nothing of Kubernetes and starts in milliseconds. While the daemon
// is down, a DEL is queued on disk and succeeds; everything else is refused with an error that makes the runtime try again.
package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/mnicloud/mnicloud/network/plugin/protocol"
)

// Type is the plugin's name in a network configuration and that of its binary.
const Type = "mni-cni"

// How long the plugin waits for the daemon, by command. An ADD may wait for addresses; the daemon's own deadline is shorter
// and its error says what it waited for.
const (
	addTimeout   = 60 * time.Second
	otherTimeout = 20 * time.Second
)

// Configuration is the plugin's part of a network configuration list, which the daemon writes.
type Configuration struct {
	types.PluginConf
	// Socket is the path of the daemon's Unix socket.
	Socket string `json:"socket"`
	// QueueDir is the folder where a DEL waits for the daemon.
	QueueDir string `json:"queueDir"`
	// RuntimeConfig is what the runtime adds for the capabilities that the daemon has asked for.
	RuntimeConfig struct {
		PortMappings []protocol.PortMapping `json:"portMappings,omitempty"`
	} `json:"runtimeConfig"`
}

// Main runs the command that the environment names (CNI specification 1.1, section 2) and exits.
func Main() {
	skel.PluginMainFuncs(Functions(), Versions(), "mni-cni: the CNI plugin of mNi Cloud")
}

// Versions of the CNI specification that the plugin speaks.
func Versions() version.PluginInfo {
	return version.PluginSupports("0.4.0", "1.0.0", "1.1.0")
}

// Functions are the plugin's commands.
func Functions() skel.CNIFuncs {
	return skel.CNIFuncs{Add: add, Check: check, Del: del, GC: gc, Status: status}
}

func configuration(data []byte) (*Configuration, error) {
	var conf Configuration
	if err := json.Unmarshal(data, &conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the network configuration is not valid JSON", err.Error())
	}
	if conf.Socket == "" || conf.QueueDir == "" {
		return nil, types.NewError(types.ErrInvalidNetworkConfig,
			`the network configuration lacks "socket" or "queueDir"; let the node's daemon write it`, "")
	}
	return &conf, nil
}

func request(command protocol.Command, args *skel.CmdArgs) protocol.Request {
	return protocol.Request{Command: command, ContainerID: args.ContainerID, Netns: args.Netns, IfName: args.IfName, Args: args.Args}
}

func add(args *skel.CmdArgs) error {
	conf, err := configuration(args.StdinData)
	if err != nil {
		return err
	}
	req := request(protocol.Add, args)
	req.PortMappings = conf.RuntimeConfig.PortMappings
	req.Network = conf.Name
	response, err := protocol.Call(conf.Socket, req, addTimeout)
	if err != nil {
		return protocol.TryAgain("cannot attach now", err)
	}
	if response.Error != nil {
		return response.Error
	}
	result, err := types100.NewResult(response.Result)
	if err != nil {
		return fmt.Errorf("the daemon's result: %w", err)
	}
	return types.PrintResult(result, conf.CNIVersion)
}

func check(args *skel.CmdArgs) error {
	conf, err := configuration(args.StdinData)
	if err != nil {
		return err
	}
	req := request(protocol.Check, args)
	if req.PrevResult, err = json.Marshal(conf.RawPrevResult); err != nil {
		return err
	}
	return refusal(protocol.Call(conf.Socket, req, otherTimeout))
}

// del detaches. No answer, for whatever reason, means that the DEL goes to the queue: the runtime must be able to remove a
// container while the daemon is down (https://github.com/cilium/cilium/issues/22067).
func del(args *skel.CmdArgs) error {
	conf, err := configuration(args.StdinData)
	if err != nil {
		return err
	}
	req := request(protocol.Del, args)
	response, err := protocol.Call(conf.Socket, req, otherTimeout)
	if errors.Is(err, protocol.ErrUnreachable) {
		if queueErr := protocol.Enqueue(conf.QueueDir, req); queueErr != nil {
			return protocol.TryAgain("cannot detach now, and cannot queue it", errors.Join(err, queueErr))
		}
		fmt.Fprintf(os.Stderr, "queued until the daemon is back: %v\n", err)
		return nil
	}
	return refusal(response, err)
}

func gc(args *skel.CmdArgs) error {
	conf, err := configuration(args.StdinData)
	if err != nil {
		return err
	}
	// An empty list means that nothing is valid; a missing one must not.
	if conf.ValidAttachments == nil && !bytes.Contains(args.StdinData, []byte(`"cni.dev/valid-attachments"`)) {
		return types.NewError(types.ErrInvalidNetworkConfig, `GC needs "cni.dev/valid-attachments" in the network configuration`, "")
	}
	req := protocol.Request{Command: protocol.GC, Network: conf.Name, ValidAttachments: conf.ValidAttachments}
	return refusal(protocol.Call(conf.Socket, req, otherTimeout))
}

func status(args *skel.CmdArgs) error {
	conf, err := configuration(args.StdinData)
	if err != nil {
		return err
	}
	response, err := protocol.Call(conf.Socket, protocol.Request{Command: protocol.Status}, otherTimeout)
	if err != nil {
		return protocol.Unavailable("no Pod can be attached now", err)
	}
	return refusal(response, nil)
}

// refusal is the error of an answer that carries no result.
func refusal(response *protocol.Response, err error) error {
	if err != nil {
		return protocol.TryAgain("cannot ask the node's network daemon", err)
	}
	if response.Error != nil {
		return response.Error
	}
	return nil
}
