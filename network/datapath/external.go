package datapath

import (
	"errors"
	"fmt"
	"net/netip"
)

// ExternalKind says what has an external address.
type ExternalKind uint32

const (
	// ExternalFree is nothing: the range of a pool, or an address whose target does not run. What is sent there drops.
	ExternalFree = ExternalKind(bpfExternalKindEXTERNAL_FREE)
	// ExternalFloating is an interface that has the address for itself (FloatingIP).
	ExternalFloating = ExternalKind(bpfExternalKindEXTERNAL_FLOATING)
	// ExternalNAT is a NATGateway's, whose ports members have in blocks (NAT).
	ExternalNAT = ExternalKind(bpfExternalKindEXTERNAL_NAT)
)

func (k ExternalKind) String() string {
	names := []string{"free", "floating", "nat"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("kind %d", uint32(k))
}

// External says what has an external address, or a range of them. Its key is the range; the longest that has an address counts.
type External struct {
	Kind ExternalKind
	// Target is the interface's address in its Subnet, VPCID its VPC.
	Target EndpointKey
	VPCID  uint32
	// Node is the underlay address of the member that has the target; the zero Addr means this node.
	Node netip.Addr
}

// FloatingKey is the address of an interface in a VPC.
type FloatingKey struct {
	VPCID   uint32
	Address netip.Addr
}

// Floating is what the outside knows an interface by.
type Floating struct {
	External netip.Addr
}

func prefixCodec() codec[netip.Prefix, bpfExternalKey] {
	return codec[netip.Prefix, bpfExternalKey]{
		encode: func(p netip.Prefix) (bpfExternalKey, error) {
			return bpfExternalKey{Prefix: toAddress(p.Addr()), PrefixLength: bits128(p.Addr(), p.Bits())}, requireIPv4("prefix", p.Addr())
		},
		decode: func(w bpfExternalKey) netip.Prefix {
			address := fromAddress(w.Prefix)
			return netip.PrefixFrom(address, bitsOf(address, w.PrefixLength))
		},
	}
}

func externalCodec() codec[External, bpfExternal] {
	return codec[External, bpfExternal]{
		encode: func(e External) (bpfExternal, error) {
			w := bpfExternal{
				Kind: bpfExternalKind(e.Kind), Node: toAddress(e.Node), Target: toAddress(e.Target.Address), Vni: e.Target.VNI, VpcId: e.VPCID,
			}
			var errs []error
			if e.Node.IsValid() {
				errs = append(errs, requireIPv4("node", e.Node))
			}
			if e.Kind == ExternalFloating {
				errs = append(errs, requireIPv4("target", e.Target.Address))
			}
			return w, errors.Join(errs...)
		},
		decode: func(w bpfExternal) External {
			return External{
				Kind: ExternalKind(w.Kind), Node: fromAddress(w.Node), VPCID: w.VpcId,
				Target: EndpointKey{VNI: w.Vni, Address: fromAddress(w.Target)},
			}
		},
	}
}

func floatingKeyCodec() codec[FloatingKey, bpfFloatingKey] {
	return codec[FloatingKey, bpfFloatingKey]{
		encode: func(k FloatingKey) (bpfFloatingKey, error) {
			return bpfFloatingKey{VpcId: k.VPCID, Address: toAddress(k.Address)}, requireIPv4("address", k.Address)
		},
		decode: func(w bpfFloatingKey) FloatingKey {
			return FloatingKey{VPCID: w.VpcId, Address: fromAddress(w.Address)}
		},
	}
}

func floatingCodec() codec[Floating, bpfFloating] {
	return codec[Floating, bpfFloating]{
		encode: func(f Floating) (bpfFloating, error) {
			return bpfFloating{External: toAddress(f.External)}, requireIPv4("external address", f.External)
		},
		decode: func(w bpfFloating) Floating { return Floating{External: fromAddress(w.External)} },
	}
}
