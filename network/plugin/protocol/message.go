package protocol

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// Version of the messages. A daemon answers requests of its own version and of older ones it knows; the plugin refuses an
// answer of another version than it asked in.
const Version = 1

// Command is a verb of the CNI specification 1.1.
type Command string

// The commands a plugin forwards.
const (
	Add    Command = "ADD"
	Check  Command = "CHECK"
	Del    Command = "DEL"
	GC     Command = "GC"
	Status Command = "STATUS"
)

// Request is one call of the container runtime, as the plugin forwards it.
type Request struct {
	// Version is the message version.
	Version int `json:"version"`
	// Command says which of the following fields matter.
	Command Command `json:"command"`
	// Network is the name of the network configuration list (ADD, GC): one daemon may serve several. Empty from older plugins.
	Network string `json:"network,omitempty"`
	// ContainerID and IfName together are the identity of an attachment (ADD, CHECK, DEL).
	ContainerID string `json:"containerID,omitempty"`
	IfName      string `json:"ifName,omitempty"`
	// Netns is the path of the container's network namespace; empty in a DEL when it is gone already.
	Netns string `json:"netns,omitempty"`
	// Args is CNI_ARGS: "K8S_POD_NAMESPACE=...;K8S_POD_NAME=...;K8S_POD_UID=...".
	Args string `json:"args,omitempty"`
	// PortMappings are the host's ports that lead to the container (ADD; the portMappings capability of CNI's conventions).
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	// PrevResult is the result of the ADD that a CHECK is about.
	PrevResult json.RawMessage `json:"prevResult,omitempty"`
	// ValidAttachments are those of the network that the runtime still knows (GC).
	ValidAttachments []types.GCAttachment `json:"validAttachments,omitempty"`
}

// PortMapping leads a port of the host to one of a container, in the words of CNI's conventions.
type PortMapping struct {
	HostPort      int32  `json:"hostPort"`
	ContainerPort int32  `json:"containerPort"`
	Protocol      string `json:"protocol"`
	// HostIP is the host's address; empty or 0.0.0.0 for all.
	HostIP string `json:"hostIP,omitempty"`
}

// Response answers a Request.
type Response struct {
	// Version is the message version.
	Version int `json:"version"`
	// Result is the CNI result (types/100 in JSON) of an ADD.
	Result json.RawMessage `json:"result,omitempty"`
	// Error is set when the command failed.
	Error *types.Error `json:"error,omitempty"`
}

// Key is the identity of an attachment, injective: neither a container ID nor an interface name can hold a colon.
func Key(containerID, ifName string) string { return containerID + ":" + ifName }

// TryAgain is the CNI error that tells the runtime to retry.
func TryAgain(message string, cause error) *types.Error {
	return types.NewError(types.ErrTryAgainLater, message, details(cause))
}

// Unavailable is the CNI error of STATUS while no ADD can be served.
func Unavailable(message string, cause error) *types.Error {
	return types.NewError(types.ErrPluginNotAvailable, message, details(cause))
}

func details(cause error) string {
	if cause == nil {
		return ""
	}
	return fmt.Sprint(cause)
}
