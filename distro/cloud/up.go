package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/mnicloud/mnicloud/distro/edge"
	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/leftovers"
	"github.com/mnicloud/mnicloud/distro/machine"
	"github.com/mnicloud/mnicloud/distro/node"
	"github.com/mnicloud/mnicloud/distro/parts"
	"github.com/mnicloud/mnicloud/distro/pki"
	"github.com/mnicloud/mnicloud/distro/preflight"
	"github.com/mnicloud/mnicloud/distro/supervisor"
	"github.com/mnicloud/mnicloud/distro/underlay"
)

// Summary is what the owner wants to know about a cloud that is up.
type Summary struct {
	// Already says that it was running, unchanged.
	Already    bool
	Nodes      int
	Kubeconfig string
	APIServer  string
	// Face is where they find it too; empty for nowhere.
	Face string
	// Gateway is where users find the cloud's API, Authority the file with the certificate of who signed the gateway's.
	Gateway, Authority string
	// Administrator is the first administrator's login, once: when it has just been made.
	Administrator *Login
	// AdministratorFile keeps it, for the owner only.
	AdministratorFile string
	// Warnings are about the machine: what works less well than it could.
	Warnings []string
}

// Wanted is what the owner asks of an instance.
type Wanted struct {
	// Nodes is how many nodes it has.
	Nodes int
	// Pool is the range of external addresses, Peer the router that learns them, as ASN@ADDRESS. Empty: as it was; "default": what
	// it is without any choice.
	Pool, Peer string
	// API is where the API is served beside the machine's own address, as ADDRESS:PORT, Cert and Key the files of its certificate. Empty:
	// as it was; "default": nowhere.
	API, Cert, Key string
}

// Up starts the instance as it is wanted, or brings a running one to the present programs and configuration, and
// returns when it is ready: its nodes are, its DNS answers and its first Pods do.
func (c Cloud) Up(ctx context.Context, wanted Wanted, progress Progress) (Summary, error) {
	nodes := wanted.Nodes
	if nodes < 1 || nodes > instance.MaxNodes {
		return Summary{}, fmt.Errorf("--nodes %d: an instance has 1 to %d nodes", nodes, instance.MaxNodes)
	}
	unlock, err := c.lock()
	if err != nil {
		return Summary{}, err
	}
	defer unlock()
	before, err := c.readSettings()
	if err != nil {
		return Summary{}, fmt.Errorf("read the instance's settings: %w", err)
	}
	now := settings{Nodes: nodes}
	if now.Outside, err = wanted.outside(before.Outside); err != nil {
		return Summary{}, err
	}
	if now.Face, err = wanted.face(before.Face); err != nil {
		return Summary{}, err
	}
	running := c.Running(ctx)
	if running && before.Nodes > nodes {
		return Summary{}, fmt.Errorf("instance %q runs with %d nodes; to have %d, stop it first: `mni down%s`",
			c.Instance.Name, before.Nodes, nodes, Flag(c.Instance.Name))
	}
	if !running {
		if running, err = c.revive(ctx, progress); err != nil {
			return Summary{}, err
		}
	}
	if !running {
		if err := c.clearGround(ctx, progress); err != nil {
			return Summary{}, err
		}
	}
	options, plan, err := c.prepare(ctx, now, progress)
	if err != nil {
		return Summary{}, err
	}
	summary := Summary{Nodes: nodes, Kubeconfig: c.Instance.AdminKubeconfig(), APIServer: options.APIServerURL(), Gateway: options.GatewayURL(), Authority: options.AuthorityFile(), AdministratorFile: c.administratorFile()}
	if now.Face.Address.IsValid() {
		summary.Face = "https://" + now.Face.Address.String()
	}
	if running {
		summary.Already, err = c.hand(ctx, plan)
	} else {
		progress("starting the parts")
		err = c.Guard(slog.New(slog.NewTextHandler(io.Discard, nil))).Start(plan, supervisor.RoleSupervisor)
	}
	if err != nil {
		return summary, err
	}
	if err := c.await(ctx, options, plan, progress); err != nil {
		return summary, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", options.Kubeconfig("installer"))
	if err != nil {
		return summary, err
	}
	if summary.Administrator, err = administrator(ctx, config, c.administratorFile()); err != nil {
		return summary, err
	}
	summary.Warnings, err = underlay.Warnings(ctx, c.Instance)
	return summary, err
}

// hand gives a running supervisor the plan and says whether it changed nothing.
func (c Cloud) hand(ctx context.Context, plan supervisor.Plan) (unchanged bool, err error) {
	before, err := c.Client().Status(ctx, 0, false)
	if err != nil {
		return false, err
	}
	if err := c.Client().Apply(ctx, plan); err != nil {
		return false, err
	}
	after, err := c.Client().Status(ctx, 0, false)
	return after.Generation == before.Generation, err
}

// revive starts a new supervisor over parts that still run: both guards of an instance were killed.
func (c Cloud) revive(ctx context.Context, progress Progress) (bool, error) {
	guard := c.Guard(slog.New(slog.NewTextHandler(io.Discard, nil)))
	plan, err := supervisor.ReadPlan(guard.PlanFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		progress("the instance's plan cannot be read (" + err.Error() + ")")
		return false, nil //nolint:nilerr // the owner is told; what runs by it is cleaned up, and another is written
	}
	intact, err := c.intact(plan)
	if err != nil || !intact {
		return false, err
	}
	progress("the supervisor died; starting another over the running parts")
	if err := guard.Start(plan, supervisor.RoleSupervisor); err != nil {
		return false, err
	}
	deadline := time.Now().Add(5 * time.Second)
	for !c.Running(ctx) {
		if time.Now().After(deadline) {
			return false, nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return false, err
		}
	}
	return true, nil
}

// intact says that parts of the plan run and their surroundings are there.
func (c Cloud) intact(plan supervisor.Plan) (bool, error) {
	for _, part := range plan.Parts {
		for _, pin := range []string{part.Place.Netns, part.Place.MountNamespace} {
			if pin == "" {
				continue
			}
			if !underlay.Pinned(pin) {
				return false, nil
			}
		}
	}
	pids, err := leftovers.Processes(c.Instance)
	return len(pids) > 0, err
}

// clearGround removes what an instance that died left, and checks that a new one can stand.
func (c Cloud) clearGround(ctx context.Context, progress Progress) error {
	left, err := leftovers.Find(ctx, c.Instance)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		progress("cleaning up after an instance that died")
		if err := leftovers.Remove(ctx, c.Instance); err != nil {
			return err
		}
	}
	progress("checking the machine")
	a := c.Instance.Addresses()
	prefixes, err := underlay.MachinePrefixes(c.Instance)
	if err != nil {
		return err
	}
	if ours, theirs, found := a.Conflict(prefixes); found {
		return fmt.Errorf("the machine has a route to %s, which overlaps the range %s of instance %q: remove the route, or use another instance (--instance NAME)",
			theirs, ours, c.Instance.Name)
	}
	return preflight.Error(preflight.Check(ctx, needs(c.Instance)))
}

// needs is what a new instance needs of the machine. Its own folder of state may be a disk of its own.
func needs(inst instance.Instance) preflight.Options {
	a := inst.Addresses()
	var listen []netip.AddrPort
	for _, port := range parts.MachinePorts {
		listen = append(listen, netip.AddrPortFrom(a.Machine, port))
	}
	return preflight.Options{
		StateDir: inst.StateDir(), Listen: listen, Ranges: a.Ranges(), OwnLinks: []string{inst.LinkPrefix() + "-"},
		ListenUDP: []netip.AddrPort{netip.AddrPortFrom(a.Machine, uint16(a.VXLANPort))},
	}
}

// prepare makes everything that the parts stand on.
func (c Cloud) prepare(ctx context.Context, s settings, progress Progress) (parts.Options, supervisor.Plan, error) {
	nodes := c.Instance.Nodes(s.Nodes)
	for _, dir := range []string{c.Instance.StateDir(), c.Instance.LogDir(), filepath.Join(c.Instance.StateDir(), "etcd")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return parts.Options{}, supervisor.Plan{}, fmt.Errorf("make the state folder: %w", err)
		}
	}
	options, err := c.options(s)
	if err != nil {
		return options, supervisor.Plan{}, err
	}
	if err := c.checkPool(options.Outside.Pool); err != nil {
		return options, supervisor.Plan{}, err
	}
	progress("making certificates and configuration")
	plan, _, err := c.write(options)
	if err != nil {
		return options, plan, err
	}
	progress("making the network and the nodes")
	for _, setting := range machine.Settings() {
		if err := setting.Acquire(c.Instance.Name); err != nil {
			return options, plan, err
		}
	}
	if err := node.MountRunDir(c.Instance); err != nil {
		return options, plan, err
	}
	if err := c.makeCgroups(nodes); err != nil {
		return options, plan, err
	}
	if options.Outside.Edge() {
		if err := edge.Prepare(c.Instance); err != nil {
			return options, plan, fmt.Errorf("prepare the edge router: %w", err)
		}
	}
	if err := underlay.Ensure(ctx, c.Instance, nodes, options.Outside); err != nil {
		return options, plan, err
	}
	for _, n := range nodes {
		if err := node.Ensure(n, c.BinDir, node.Resolver()); err != nil {
			return options, plan, err
		}
	}
	if err := supervisor.WritePlan(c.Guard(nil).PlanFile, plan); err != nil {
		return options, plan, err
	}
	return options, plan, c.writeSettings(s)
}

// write makes the files, certificates first, and the plan that depends on them. It says which certificates are new.
func (c Cloud) write(options parts.Options) (plan supervisor.Plan, renewed []string, err error) {
	all := parts.New(options)
	store := pki.Store{Dir: c.Instance.PKIDir(), Now: time.Now}
	if renewed, err = store.Ensure(all.Certificates); err != nil {
		return plan, renewed, err
	}
	if err := store.EnsureServiceAccountKey(); err != nil {
		return plan, renewed, err
	}
	if err := store.EnsureEncryptionKey(); err != nil {
		return plan, renewed, err
	}
	late, err := options.FilesFromCertificates()
	if err != nil {
		return plan, renewed, err
	}
	all.Files = append(all.Files, late...)
	if err := all.Write(); err != nil {
		return plan, renewed, err
	}
	plan, err = all.Plan()
	return plan, renewed, err
}
