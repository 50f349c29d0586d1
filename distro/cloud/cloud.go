package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"golang.org/x/sys/unix"

	"github.com/mnicloud/mnicloud/distro/cgroup"
	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/leftovers"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/parts"
	"github.com/mnicloud/mnicloud/distro/registry"
	"github.com/mnicloud/mnicloud/distro/spawn"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

// Progress is told what is being done.
type Progress func(step string)

// Cloud is one instance on this machine.
type Cloud struct {
	Instance instance.Instance
	// BinDir is the folder with the programs.
	BinDir string
	// ImageLayout is the OCI layout that the registry is filled from.
	ImageLayout string
}

// Registry is the machine's list of instances.
func Registry() instance.Registry { return instance.Registry{Dir: instance.StateRoot} }

// Find returns the instance of that name; the error says how to start one when there is none.
func Find(name string) (Cloud, error) {
	inst, ok, err := Registry().Find(name)
	if err != nil {
		return Cloud{}, err
	}
	if !ok {
		return Cloud{}, fmt.Errorf("there is no instance %q on this machine: `mni up%s` starts one", name, Flag(name))
	}
	return open(inst)
}

// Take is Find that makes the instance when there is none.
func Take(name string) (Cloud, error) {
	inst, err := Registry().Take(name)
	if err != nil {
		return Cloud{}, err
	}
	return open(inst)
}

// Lost returns an instance that is not in the machine's list (its state was deleted by other means) while something of it
// is still on the machine; ok is false when nothing is. The slot of a lost instance is not known, nor needed to remove it.
func Lost(ctx context.Context, name string) (c Cloud, ok bool, err error) {
	inst := instance.Instance{Name: name}
	if name != instance.Default {
		inst.Slot = unknownSlot
	}
	left, err := leftovers.Find(ctx, inst)
	if err != nil || len(left) == 0 {
		return c, false, err
	}
	c, err = open(inst)
	return c, err == nil, err
}

// unknownSlot is one that no instance has: its links and ranges are nobody's.
const unknownSlot = 99

// Flag is how a command names the instance: nothing for the default one.
func Flag(name string) string {
	if name == instance.Default {
		return ""
	}
	return " --instance " + name
}

func open(inst instance.Instance) (Cloud, error) {
	self, err := os.Executable()
	if err != nil {
		return Cloud{}, err
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return Cloud{}, err
	}
	binDir := filepath.Dir(self)
	return Cloud{Instance: inst, BinDir: binDir, ImageLayout: filepath.Join(filepath.Dir(binDir), "build", "images")}, nil
}

func (c Cloud) lockFile() string { return filepath.Join(instance.RunRoot, c.Instance.Name+".lock") }

// lock keeps two commands from changing the instance at once.
func (c Cloud) lock() (func(), error) {
	for {
		if err := os.MkdirAll(instance.RunRoot, 0o755); err != nil {
			return nil, err
		}
		unlock, err := instance.TryLock(c.lockFile())
		switch {
		case errors.Is(err, fs.ErrNotExist): // another instance's end has just removed the folder
		case errors.Is(err, instance.ErrLocked):
			return nil, fmt.Errorf("another `mni up`, `down` or `reset` is at work on instance %q: wait for it to end", c.Instance.Name)
		default:
			return unlock, err
		}
	}
}

// removeLock removes the lock's file, and the folder when it was the last instance's. The caller holds the lock, and changes
// nothing after this.
func (c Cloud) removeLock() {
	_ = os.Remove(c.lockFile())
	_ = unix.Rmdir(instance.RunRoot)
}

// Client speaks to the instance's supervisor.
func (c Cloud) Client() *supervisor.Client {
	return supervisor.NewClient(c.Instance.SupervisorSocket())
}

// Guard starts and is the instance's supervisor and keeper.
func (c Cloud) Guard(log *slog.Logger) supervisor.Guard {
	return supervisor.Guard{
		Command:  []string{filepath.Join(c.BinDir, "mni"), "instance", "guard", "--instance=" + c.Instance.Name},
		PlanFile: filepath.Join(c.Instance.ConfigDir(), "plan.json"),
		Place:    spawn.Place{Cgroup: parts.SystemCgroup(c.Instance)},
		Log:      log,
	}
}

// settings are what an instance remembers about how it was started.
type settings struct {
	Nodes int `json:"nodes"`
	// Outside is what the owner chose; zero where the defaults serve.
	Outside instance.Outside `json:"outside,omitzero"`
	// Face is where the owner has the API served too; zero for nowhere.
	Face instance.Face `json:"face,omitzero"`
}

func (c Cloud) settingsFile() string { return filepath.Join(c.Instance.StateDir(), "instance.json") }

func (c Cloud) readSettings() (settings, error) {
	var s settings
	raw, err := os.ReadFile(c.settingsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	err = json.Unmarshal(raw, &s)
	return s, err
}

func (c Cloud) writeSettings(s settings) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return instance.WriteFile(c.settingsFile(), raw, 0o644)
}

// options look at the machine for what the parts need to know.
func (c Cloud) options(s settings) (parts.Options, error) {
	outside := s.Outside
	if !outside.Pool.IsValid() {
		outside.Pool = c.Instance.Addresses().Pool
	}
	credentials, err := registry.StateOf(c.Instance).Credentials()
	if err != nil {
		return parts.Options{}, fmt.Errorf("make the registry's credentials: %w", err)
	}
	containerd, err := exec.LookPath("containerd")
	if err != nil {
		return parts.Options{}, fmt.Errorf("containerd is not installed: run `mni host install`")
	}
	if containerd, err = filepath.EvalSymlinks(containerd); err != nil {
		return parts.Options{}, err
	}
	dns, err := c.dnsImage()
	if err != nil {
		return parts.Options{}, err
	}
	return parts.Options{
		Instance: c.Instance, DNSImage: dns, Nodes: s.Nodes, Outside: outside, Face: s.Face, BinDir: c.BinDir, ImageLayout: c.ImageLayout, Containerd: containerd,
		RegistryPassword: credentials.Node, Resolver: len(node.Resolver()) > 0, RestrictOOMScore: !hasCapability(unix.CAP_SYS_RESOURCE),
	}, nil
}

// dnsImage is the name of the cluster DNS's image, with the tag that it has in the layout.
func (c Cloud) dnsImage() (string, error) {
	path, err := layout.FromPath(c.ImageLayout)
	if err != nil {
		return "", fmt.Errorf("no images in %s, run `make build`: %w", c.ImageLayout, err)
	}
	index, err := path.ImageIndex()
	if err != nil {
		return "", err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return "", err
	}
	for _, image := range manifest.Manifests {
		if name := image.Annotations["org.opencontainers.image.ref.name"]; strings.HasPrefix(name, "mni/coredns:") {
			return registry.Name + "/" + name, nil
		}
	}
	return "", fmt.Errorf("there is no image mni/coredns in %s: run `make build`", c.ImageLayout)
}

func hasCapability(bit uint) bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[bit/32].Effective&(1<<(bit%32)) != 0
}

// Down stops the instance and removes everything of it but its state.
func (c Cloud) Down(ctx context.Context, progress Progress) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.down(ctx, progress); err != nil {
		return err
	}
	c.removeLock()
	return nil
}

func (c Cloud) down(ctx context.Context, progress Progress) error {
	progress("stopping the parts")
	if err := c.Client().Stop(ctx); err != nil && !errors.Is(err, supervisor.ErrNotRunning) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		progress("the supervisor does not stop the parts (" + err.Error() + "); killing them")
	}
	progress("removing namespaces, links, mounts and control groups")
	return leftovers.Remove(ctx, c.Instance)
}

// Reset is Down and deletes the state: certificates, etcd's data, images, nodes' disks.
func (c Cloud) Reset(ctx context.Context, progress Progress) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.down(ctx, progress); err != nil {
		return err
	}
	progress("deleting the state")
	if err := os.RemoveAll(c.Instance.StateDir()); err != nil {
		return fmt.Errorf("delete the state: %w", err)
	}
	if err := Registry().Release(c.Instance.Name); err != nil {
		return err
	}
	c.removeLock()
	return nil
}

// Running says whether a supervisor answers.
func (c Cloud) Running(ctx context.Context) bool {
	_, err := c.Client().Status(ctx, 0, false)
	return err == nil
}

func (c Cloud) makeCgroups(nodes []instance.Node) error {
	tree, err := cgroup.Detect()
	if err != nil {
		return err
	}
	paths := []string{parts.SystemCgroup(c.Instance)}
	for _, n := range nodes {
		paths = append(paths, n.PodCgroup())
	}
	for _, path := range paths {
		if err := tree.Make(path); err != nil {
			return err
		}
	}
	for _, n := range nodes {
		if err := tree.Delegate(n.PodCgroup()); err != nil {
			return err
		}
	}
	return nil
}
