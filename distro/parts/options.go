package parts

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/pki"
	"github.com/mnicloud/mnicloud/distro/registry"
	"github.com/mnicloud/mnicloud/distro/spawn"
	"github.com/mnicloud/mnicloud/distro/supervisor"
)

// Options is what an instance is made from.
type Options struct {
	Instance instance.Instance
	// Nodes is how many nodes there are.
	Nodes int
	// Outside is how the instance meets the world.
	Outside instance.Outside
	// Face is where users find the API too.
	Face instance.Face
	// BinDir is the machine's folder with mni, mni-kube, mni-cloud, mni-gateway, mni-netd, mni-bgpd, mni-dns and mni-cni.
	BinDir string
	// Containerd is the path of the container runtime.
	Containerd string
	// ImageLayout is the OCI layout with the images that the instance's registry must hold.
	ImageLayout string
	// DNSImage is the image of the cluster's DNS servers.
	DNSImage string
	// RegistryPassword is the nodes' password at the registry.
	RegistryPassword string
	// Resolver says that nodes have a resolver for names outside the cluster.
	Resolver bool
	// RestrictOOMScore keeps the container runtime from lowering processes' oom_score_adj, which takes CAP_SYS_RESOURCE.
	RestrictOOMScore bool
}

// PauseImage keeps a Pod's namespaces.
const PauseImage = registry.Name + "/mni/pause:1"

// File is a configuration file.
type File struct {
	Path    string
	Content string
	// Secret files are readable by their owner only.
	Secret bool
}

// spec is a part together with what it reads: when any of it changes, the part must be restarted.
type spec struct {
	supervisor.Part
	binary string // path on the machine
	files  []File
	certs  []pki.Request
}

// Instance is everything that an instance consists of.
type Instance struct {
	Certificates []pki.Request
	Files        []File
	specs        []spec
	options      Options
}

// New computes an instance.
func New(o Options) Instance {
	all := Instance{options: o, Certificates: certificates(o)}
	all.specs = append(all.specs, o.controlPlane()...)
	if o.Outside.Edge() {
		all.specs = append(all.specs, o.edge()...)
	}
	for _, n := range o.Instance.Nodes(o.Nodes) {
		all.specs = append(all.specs, o.node(n)...)
	}
	for _, s := range all.specs {
		all.Files = append(all.Files, s.files...)
	}
	return all
}

// Write writes the configuration files.
func (i Instance) Write() error {
	for _, f := range i.Files {
		if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
			return err
		}
		if have, err := os.ReadFile(f.Path); err == nil && string(have) == f.Content {
			continue
		}
		mode := fs.FileMode(0o644)
		if f.Secret {
			mode = 0o600
		}
		if err := instance.WriteFile(f.Path, []byte(f.Content), mode); err != nil {
			return err
		}
	}
	return nil
}

// Plan is what the supervisor runs. It reads programs' and certificates' files to know when a part must be restarted.
func (i Instance) Plan() (supervisor.Plan, error) {
	inst := i.options.Instance
	plan := supervisor.Plan{Instance: inst.Name, LogDir: inst.LogDir(), RunDir: inst.RunDir()}
	for _, s := range i.specs {
		revision, err := s.revision()
		if err != nil {
			return plan, fmt.Errorf("part %s: %w", s.Name, err)
		}
		s.Revision = revision
		plan.Parts = append(plan.Parts, s.Part)
	}
	return plan, plan.Validate()
}

func (s spec) revision() (string, error) {
	sum := sha256.New()
	program, err := identity(s.binary)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the program %s is missing: run `make build`", s.binary)
	}
	if err != nil {
		return "", err
	}
	fmt.Fprintln(sum, program)
	for _, f := range s.files {
		fmt.Fprintln(sum, f.Path, f.Content)
	}
	for _, c := range s.certs {
		content, err := os.ReadFile(c.CertFile())
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, string(content))
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// identity is what changes when a program does: its Go build ID, which is the same when it is built again from the same
// sources, or else when its file was written and how long it is.
func identity(program string) (string, error) {
	stat, err := os.Stat(program)
	if err != nil {
		return "", err
	}
	if file, err := elf.Open(program); err == nil {
		defer func() { _ = file.Close() }()
		if section := file.Section(".note.go.buildid"); section != nil {
			note, err := section.Data()
			if err == nil && bytes.Contains(note, []byte{'/'}) { // ACTION/.../CONTENT; an ID that was taken out has none
				return hex.EncodeToString(note), nil
			}
		}
	}
	return fmt.Sprint(stat.ModTime().UnixNano(), " ", stat.Size()), nil
}

// machinePart is a part that runs on the machine itself.
func (o Options) machinePart(name, program string, args ...string) spec {
	binary := filepath.Join(o.BinDir, program)
	return spec{binary: binary, Part: supervisor.Part{
		Name: name, Command: append([]string{binary}, args...),
		Place: spawn.Place{Cgroup: SystemCgroup(o.Instance)}, StopTimeout: 10 * time.Second,
	}}
}

// nodePart is a part that runs in a node.
func (o Options) nodePart(n instance.Node, name, program string, args ...string) spec {
	place := node.Place(n)
	place.Cgroup = SystemCgroup(o.Instance)
	inside := filepath.Join(node.BinDir, program)
	return spec{binary: filepath.Join(o.BinDir, program), Part: supervisor.Part{
		Name: n.Name() + "/" + name, Command: append([]string{inside}, args...),
		Place: place, StopTimeout: 10 * time.Second,
	}}
}

// SystemCgroup is the control group of everything that is not a Pod.
func SystemCgroup(inst instance.Instance) string { return inst.Cgroup() + "/system" }

func (o Options) store() pki.Store { return pki.Store{Dir: o.Instance.PKIDir(), Now: time.Now} }

func (o Options) config(name string) string { return filepath.Join(o.Instance.ConfigDir(), name) }

// cert finds a certificate by its folder and name.
func (o Options) cert(dir, name string) pki.Request {
	all := certificates(o)
	i := slices.IndexFunc(all, func(r pki.Request) bool { return r.Dir == dir && r.Name == name })
	if i < 0 {
		panic("no certificate " + dir + "/" + name) // a mistake in this package
	}
	return all[i]
}
