package parts

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/mnicloud/mnicloud/distro/instance"
	"github.com/mnicloud/mnicloud/distro/pki"
)

func options(t *testing.T) Options {
	t.Helper()
	bin := t.TempDir()
	for _, name := range []string{"mni", "mni-kube", "mni-cloud", "mni-gateway", "mni-netd", "mni-bgpd", "mni-dns", "containerd"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), nil, 0o700))
	}
	return Options{
		Instance: instance.Instance{Name: "unit", Slot: 3}, Nodes: 2, BinDir: bin, Containerd: filepath.Join(bin, "containerd"),
		ImageLayout: "/images", DNSImage: "dns:1", RegistryPassword: "secret", Resolver: true,
		Outside: instance.Outside{Pool: netip.MustParsePrefix("198.51.100.64/27")},
	}
}

// withoutCertificates makes the parts' revisions depend on programs and files only, so that no certificate must exist.
func withoutCertificates(i Instance) Instance {
	for k := range i.specs {
		i.specs[k].certs = nil
	}
	return i
}

func TestThePlanIsWhole(t *testing.T) {
	o := options(t)
	plan, err := withoutCertificates(New(o)).Plan()
	require.NoError(t, err)
	for _, name := range []string{
		Etcd, APIServer, ControllerManager, Scheduler, Registry, Images, Manifests, Cloud, Gateway, MachineNetd,
		"node-1/containerd", "node-1/kubelet", "node-1/kube-proxy", "node-1/mni-netd", "node-1/mni-bgpd", "node-1/mni-dns", "node-2/kubelet", "edge/zebra", "edge/bfdd", "edge/bgpd",
	} {
		part, ok := plan.Part(name)
		require.True(t, ok, name)
		require.True(t, part.Ready != nil || part.Once, "%s says when it is ready", name)
		require.Equal(t, SystemCgroup(o.Instance), part.Place.Cgroup, name)
		require.Equal(t, strings.HasPrefix(name, "node-") || strings.HasPrefix(name, "edge/"), part.Place.Netns != "", name)
		require.True(t, slices.ContainsFunc(part.Env, func(e string) bool { return strings.HasPrefix(e, "GOMEMLIMIT=") }) || part.Once || strings.HasPrefix(name, "edge/"), name)
	}
	kubelet, _ := plan.Part("node-2/kubelet")
	require.Equal(t, "/mni/unit/node-2", kubelet.Sweep, "its Pods end with the instance")
}

// Where the processor is short, BFD (3 x 300 ms) would take whoever waits for it for dead, and all external traffic would stop.
func TestBothEndsOfBFDGoFirst(t *testing.T) {
	o := options(t)
	plan, err := withoutCertificates(New(o)).Plan()
	require.NoError(t, err)
	for _, name := range []string{"node-1/mni-bgpd", "node-2/mni-bgpd", "edge/zebra", "edge/bfdd", "edge/bgpd"} {
		part, ok := plan.Part(name)
		require.True(t, ok, name)
		require.Equal(t, firstServed, part.Place.Nice, name)
	}
}

func TestNothingListensOutsideTheUnderlay(t *testing.T) {
	o := options(t)
	plan, err := withoutCertificates(New(o)).Plan()
	require.NoError(t, err)
	for _, part := range plan.Parts {
		for _, arg := range part.Command {
			name, value, _ := strings.Cut(arg, "=")
			if strings.Contains(name, "bind") || strings.Contains(name, "listen") || name == "--address" || strings.HasSuffix(name, "-address") {
				require.Contains(t, value, "198.19.67.", "%s %s", part.Name, arg)
			}
		}
	}
	for _, f := range New(o).Files {
		require.NotContains(t, f.Content, "0.0.0.0", f.Path)
	}
}

func TestConfigurationFilesAreYAMLAndSecretsAreTheOwners(t *testing.T) {
	for _, f := range New(options(t)).Files {
		if strings.HasSuffix(f.Path, ".yaml") || strings.HasSuffix(f.Path, ".kubeconfig") {
			var into map[string]any
			require.NoError(t, yaml.UnmarshalStrict([]byte(f.Content), &into), f.Path)
			require.NotEmpty(t, into["kind"], f.Path)
		}
		if strings.HasSuffix(f.Path, ".kubeconfig") || strings.Contains(f.Content, "Authorization") {
			require.True(t, f.Secret, f.Path)
		}
	}
}

func TestAnonymousRequestsAreRefusedEverywhere(t *testing.T) {
	all := New(options(t))
	plan, err := withoutCertificates(all).Plan()
	require.NoError(t, err)
	apiserver, _ := plan.Part(APIServer)
	require.Contains(t, apiserver.Command, "--anonymous-auth=false")
	require.Contains(t, apiserver.Command, "--authorization-mode=Node,RBAC")
	etcd, _ := plan.Part(Etcd)
	require.Contains(t, etcd.Command, "--client-cert-auth=true")
	require.Contains(t, etcd.Command, "--peer-client-cert-auth=true")
	for _, f := range all.Files {
		if strings.HasSuffix(f.Path, "kubelet.yaml") {
			require.Contains(t, f.Content, "anonymous: {enabled: false}")
			require.Contains(t, f.Content, "readOnlyPort: 0")
		}
	}
}

func TestOnlyTheAPIServerMayReadEtcd(t *testing.T) {
	for _, r := range New(options(t)).Certificates {
		if r.Authority == pki.Etcd {
			require.Contains(t, []string{"etcd", "apiserver-etcd-client"}, r.Name)
		}
		if slices.Contains(r.Groups, "system:masters") {
			require.Equal(t, "installer", r.Name)
		}
	}
}

func TestANodeHoldsItsOwnCertificatesOnly(t *testing.T) {
	o := options(t)
	nodes := o.Instance.Nodes(2)
	for _, r := range New(o).Certificates {
		if strings.HasPrefix(r.Dir, nodes[0].StateDir()+"/") {
			require.NotContains(t, r.User, "node-2")
		}
		require.Equal(t, r.Dir == o.Instance.PKIDir(), !strings.HasPrefix(r.Dir, o.Instance.StateDir()+"/nodes/"), r.Name)
	}
}

func TestAPartIsRestartedWhenWhatItReadsChanges(t *testing.T) {
	o := options(t)
	store := pki.Store{Dir: t.TempDir(), Now: time.Now}
	cert := pki.Request{Name: "kubelet", Dir: store.Dir, Authority: pki.Cluster, User: "a", Client: true}
	_, err := store.Ensure([]pki.Request{cert})
	require.NoError(t, err)
	part := o.machinePart("a", "mni")
	part.certs, part.files = []pki.Request{cert}, []File{{Path: "/a", Content: "1"}}
	revision := func(s spec) string {
		got, err := s.revision()
		require.NoError(t, err)
		return got
	}
	before := revision(part)
	require.Equal(t, before, revision(part))

	changed := part
	changed.files = []File{{Path: "/a", Content: "2"}}
	require.NotEqual(t, before, revision(changed), "another configuration")

	require.NoError(t, os.WriteFile(part.binary, []byte("new"), 0o700))
	program := revision(part)
	require.NotEqual(t, before, program, "another program")

	cert.User = "b"
	_, err = store.Ensure([]pki.Request{cert})
	require.NoError(t, err)
	require.NotEqual(t, program, revision(part), "another certificate")

	require.NoError(t, os.Remove(part.binary))
	_, err = part.revision()
	require.ErrorContains(t, err, "make build")
}

func TestAProgramThatIsBuiltAgainWithoutAChangeRestartsNothing(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	content, err := os.ReadFile(self)
	require.NoError(t, err)
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, content, 0o700))
	before, err := identity(program)
	require.NoError(t, err)
	require.NoError(t, os.Chtimes(program, time.Time{}, time.Now().Add(time.Hour)))
	again, err := identity(program)
	require.NoError(t, err)
	require.Equal(t, before, again)

	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700))
	other, err := identity(program)
	require.NoError(t, err)
	require.NotEqual(t, before, other)
}

func TestAuditKeepsNoSecret(t *testing.T) {
	var policy struct {
		Rules []struct {
			Level     string
			Resources []struct {
				Group     string
				Resources []string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(AuditPolicy), &policy))
	level := func(group, resource string) string {
		for _, rule := range policy.Rules {
			for _, r := range rule.Resources {
				if r.Group == group && (len(r.Resources) == 0 || slices.Contains(r.Resources, resource)) {
					return rule.Level
				}
			}
			if len(rule.Resources) == 0 && rule.Level != "None" {
				return rule.Level
			}
		}
		return ""
	}
	require.Equal(t, "Metadata", level("", "secrets"))
	require.Equal(t, "Metadata", level("authentication.k8s.io", "tokenreviews"))
	require.Equal(t, "Metadata", level("auth.mnicloud.jp", "users"))
	require.Equal(t, "Metadata", level("ctr.mnicloud.jp", "containers"), "an environment may hold a password")
	require.Equal(t, "Metadata", level("", "pods"))
	require.Equal(t, "Request", level("rbac.authorization.k8s.io", "roles"))
}

func TestWithARouterOfTheOwnersThereIsNoEdgeRouter(t *testing.T) {
	o := options(t)
	o.Outside.Peer = instance.Peer{ASN: 65000, Address: netip.MustParseAddr("192.168.1.1")}
	plan, err := withoutCertificates(New(o)).Plan()
	require.NoError(t, err)
	for _, part := range plan.Parts {
		require.False(t, strings.HasPrefix(part.Name, "edge/"), part.Name)
	}
	installer, _ := plan.Part(Manifests)
	require.Contains(t, installer.Command, "--peer=65000@192.168.1.1")
	e := o.external()
	require.Equal(t, "router", e.PeerName)
	require.Equal(t, "192.168.1.1", e.PeerAddress)
	require.NotZero(t, e.Multihop, "the machine is in between")
}
