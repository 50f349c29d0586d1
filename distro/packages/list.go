package packages

// Package is a Debian package the cloud needs.
type Package struct {
	// Name of the package in Debian.
	Name string
	// Reason says what the cloud needs it for.
	Reason string
	// Programs are executables that stand for the package: when all of them are on PATH, whoever brought them, the package
	// is not missed. Empty: only the package itself counts.
	Programs []string
	// Units are the systemd units that the package would enable. They are disabled again after a fresh installation.
	Units []string
}

// Runtime is what a machine needs to run the cloud.
func Runtime() []Package {
	return []Package{
		{
			Name: "containerd", Reason: "runs the nodes' containers, one private daemon per node",
			Programs: []string{"containerd", "containerd-shim-runc-v2", "ctr"}, Units: []string{"containerd.service"},
		},
		{
			Name: "runc", Reason: "the OCI runtime below containerd",
			Programs: []string{"runc"},
		},
		{
			Name: "nftables", Reason: "the nft program of kube-proxy (Services reached from nodes)",
			Programs: []string{"nft"}, Units: []string{"nftables.service"},
		},
		{
			Name: "bird2", Reason: "BIRD, with which the nodes announce external addresses by BGP",
			Programs: []string{"bird"}, Units: []string{"bird.service"},
		},
		{
			Name: "frr", Reason: "the edge router, which learns external addresses from the nodes",
			Units: []string{"frr.service"},
		},
		{
			Name: "logrotate", Reason: "FRR's package depends on it; its timer stays off where it is new",
			Programs: []string{"logrotate"}, Units: []string{"logrotate.timer"},
		},
		{
			Name: "iproute2", Reason: "ip and bridge, to look into the nodes' namespaces",
			Programs: []string{"ip", "bridge"},
		},
		{
			Name: "kmod", Reason: "modprobe, with which the kernel loads vxlan, overlay and nftables modules on demand",
			Programs: []string{"modprobe"},
		},
		{
			Name: "ca-certificates", Reason: "trust in outside registries, and the root certificates of the images made from Debian packages",
		},
	}
}

// Development is what building and testing the cloud needs beyond Runtime, Go, Node, git and make.
func Development() []Package {
	return []Package{
		{
			Name: "libc6-dev", Reason: "C headers and libraries, for Go's race detector",
		},
		{
			Name: "gcc", Reason: "the C compiler of cgo, for Go's race detector",
			Programs: []string{"gcc"},
		},
		{
			Name: "clang-14", Reason: "compiles the eBPF programs; one pinned version, so that the objects checked in can be proven fresh",
			Programs: []string{"clang-14"},
		},
		{
			Name: "llvm-14", Reason: "llvm-strip for the eBPF objects",
			Programs: []string{"llvm-strip-14"},
		},
		{
			Name: "libbpf-dev", Reason: "the eBPF helpers' C headers",
		},
		{
			Name: "debootstrap", Reason: "makes the bare Debian root in which the package step and the preflight are tested",
			Programs: []string{"debootstrap"},
		},
	}
}
