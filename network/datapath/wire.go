package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"unsafe"
)

// Addresses and ports in maps are in network byte order whatever the machine's.

func toAddress(a netip.Addr) bpfAddress {
	if !a.IsValid() {
		return bpfAddress{}
	}
	b := a.As16()
	return *(*bpfAddress)(unsafe.Pointer(&b))
}

func fromAddress(w bpfAddress) netip.Addr {
	if w == (bpfAddress{}) {
		return netip.Addr{}
	}
	return netip.AddrFrom16(*(*[16]byte)(unsafe.Pointer(&w))).Unmap()
}

// fromIPv4 is an address of four bytes; the zero Addr for 0.
func fromIPv4(word uint32) netip.Addr {
	if word == 0 {
		return netip.Addr{}
	}
	return netip.AddrFrom4(*(*[4]byte)(unsafe.Pointer(&word)))
}

func networkPort(port uint16) uint16 {
	return binary.NativeEndian.Uint16([]byte{byte(port >> 8), byte(port)})
}

// bits128 and bitsOf translate between a prefix length and that of the 128-bit form.
func bits128(a netip.Addr, bits int) uint32 {
	if a.Is4() {
		bits += 96
	}
	return uint32(bits)
}

func bitsOf(a netip.Addr, bits uint32) int {
	if a.Is4() {
		bits -= 96
	}
	return int(bits)
}

var errNotIPv4 = errors.New("is not an IPv4 address; IPv6 is not supported yet")

func requireIPv4(what string, a netip.Addr) error {
	if !a.Is4() {
		return fmt.Errorf("%s %v %w", what, a, errNotIPv4)
	}
	return nil
}

func uint32Codec() codec[uint32, uint32] {
	same := func(v uint32) uint32 { return v }
	return codec[uint32, uint32]{encode: func(v uint32) (uint32, error) { return v, nil }, decode: same}
}

func addrCodec() codec[netip.Addr, bpfAddress] {
	return codec[netip.Addr, bpfAddress]{
		encode: func(a netip.Addr) (bpfAddress, error) { return toAddress(a), requireIPv4("address", a) },
		decode: fromAddress,
	}
}

func subnetCodec() codec[Subnet, bpfSubnet] {
	return codec[Subnet, bpfSubnet]{
		encode: func(s Subnet) (bpfSubnet, error) {
			return bpfSubnet{
				Prefix: toAddress(s.Prefix.Addr()), PrefixLength: uint8(bits128(s.Prefix.Addr(), s.Prefix.Bits())),
				Gateway: toAddress(s.Gateway), GatewayMac: s.GatewayMAC, VpcId: s.VPCID,
			}, errors.Join(requireIPv4("prefix", s.Prefix.Addr()), requireIPv4("gateway", s.Gateway))
		},
		decode: func(w bpfSubnet) Subnet {
			address := fromAddress(w.Prefix)
			return Subnet{
				VPCID: w.VpcId, Prefix: netip.PrefixFrom(address, bitsOf(address, uint32(w.PrefixLength))),
				Gateway: fromAddress(w.Gateway), GatewayMAC: w.GatewayMac,
			}
		},
	}
}

func nicCodec() codec[NIC, bpfNic] {
	return codec[NIC, bpfNic]{
		encode: func(n NIC) (bpfNic, error) {
			var flags bpfNicFlags
			if n.NoSourceDestCheck {
				flags |= bpfNicFlagsNIC_NO_SOURCE_DEST_CHECK
			}
			if n.NoServices {
				flags |= bpfNicFlagsNIC_NO_SERVICES
			}
			return bpfNic{
				Address: toAddress(n.Address), PrefixLength: bits128(n.Address, int(n.PrefixLength)),
				Infrastructure: toAddress(n.Infrastructure),
				Vni:            n.VNI, VpcId: n.VPCID, Mac: n.MAC, GatewayMac: n.GatewayMAC, Flags: flags,
				IngressPolicy: uint32(n.IngressPolicy), EgressPolicy: uint32(n.EgressPolicy),
			}, requireIPv4("address", n.Address)
		},
		decode: func(w bpfNic) NIC {
			address := fromAddress(w.Address)
			return NIC{
				VNI: w.Vni, VPCID: w.VpcId, Address: address, PrefixLength: uint8(bitsOf(address, w.PrefixLength)),
				MAC: w.Mac, GatewayMAC: w.GatewayMac, Infrastructure: fromAddress(w.Infrastructure),
				NoSourceDestCheck: w.Flags&bpfNicFlagsNIC_NO_SOURCE_DEST_CHECK != 0, NoServices: w.Flags&bpfNicFlagsNIC_NO_SERVICES != 0,
				IngressPolicy: PolicyID(w.IngressPolicy), EgressPolicy: PolicyID(w.EgressPolicy),
			}
		},
	}
}

func endpointKeyCodec() codec[EndpointKey, bpfEndpointKey] {
	return codec[EndpointKey, bpfEndpointKey]{
		encode: func(k EndpointKey) (bpfEndpointKey, error) {
			return bpfEndpointKey{Vni: k.VNI, Address: toAddress(k.Address)}, requireIPv4("address", k.Address)
		},
		decode: func(w bpfEndpointKey) EndpointKey { return EndpointKey{VNI: w.Vni, Address: fromAddress(w.Address)} },
	}
}

func endpointCodec() codec[Endpoint, bpfEndpoint] {
	return codec[Endpoint, bpfEndpoint]{
		encode: func(e Endpoint) (bpfEndpoint, error) {
			w := bpfEndpoint{
				Node: toAddress(e.Node), VpcId: e.VPCID, Ifindex: e.Ifindex, Kind: bpfEndpointKind(e.Kind), Mac: e.MAC,
			}
			if e.Node.IsValid() {
				return w, requireIPv4("node", e.Node)
			}
			return w, nil
		},
		decode: func(w bpfEndpoint) Endpoint {
			return Endpoint{VPCID: w.VpcId, Kind: EndpointKind(w.Kind), MAC: w.Mac, Node: fromAddress(w.Node), Ifindex: w.Ifindex}
		},
	}
}

func routeKeyCodec() codec[RouteKey, bpfRouteKey] {
	return codec[RouteKey, bpfRouteKey]{
		encode: func(k RouteKey) (bpfRouteKey, error) {
			return bpfRouteKey{
				Vni: k.VNI, Prefix: toAddress(k.Prefix.Addr()), PrefixLength: 32 + bits128(k.Prefix.Addr(), k.Prefix.Bits()),
			}, requireIPv4("prefix", k.Prefix.Addr())
		},
		decode: func(w bpfRouteKey) RouteKey {
			address := fromAddress(w.Prefix)
			return RouteKey{VNI: w.Vni, Prefix: netip.PrefixFrom(address, bitsOf(address, w.PrefixLength-32))}
		},
	}
}

func routeCodec() codec[Route, bpfRoute] {
	return codec[Route, bpfRoute]{
		encode: func(r Route) (bpfRoute, error) {
			w := bpfRoute{Kind: bpfRouteKind(r.Kind), Vni: r.VNI, PeerVpcId: r.VPCID, HopVni: r.Hop.VNI, Hop: toAddress(r.Hop.Address)}
			if r.Hop.Address.IsValid() {
				return w, requireIPv4("next hop", r.Hop.Address)
			}
			return w, nil
		},
		decode: func(w bpfRoute) Route {
			return Route{Kind: RouteKind(w.Kind), VNI: w.Vni, VPCID: w.PeerVpcId, Hop: EndpointKey{VNI: w.HopVni, Address: fromAddress(w.Hop)}}
		},
	}
}

func hopKeyCodec() codec[HopKey, bpfHopKey] {
	return codec[HopKey, bpfHopKey]{
		encode: func(k HopKey) (bpfHopKey, error) { return bpfHopKey{Vni: k.VNI, Mac: k.MAC}, nil },
		decode: func(w bpfHopKey) HopKey { return HopKey{VNI: w.Vni, MAC: w.Mac} },
	}
}

func hopCodec() codec[Hop, bpfHop] {
	return codec[Hop, bpfHop]{
		encode: func(h Hop) (bpfHop, error) { return bpfHop{Ifindex: h.Ifindex}, nil },
		decode: func(w bpfHop) Hop { return Hop{Ifindex: w.Ifindex} },
	}
}

func forwarderKeyCodec() codec[ForwarderKey, bpfForwarderKey] {
	return codec[ForwarderKey, bpfForwarderKey]{
		encode: func(k ForwarderKey) (bpfForwarderKey, error) {
			return bpfForwarderKey{Member: toAddress(k.Member), VpcId: k.VPCID}, requireIPv4("member", k.Member)
		},
		decode: func(w bpfForwarderKey) ForwarderKey {
			return ForwarderKey{Member: fromAddress(w.Member), VPCID: w.VpcId}
		},
	}
}

func forwarderCodec() codec[Forwarder, bpfForwarder] {
	return codec[Forwarder, bpfForwarder]{
		encode: func(Forwarder) (bpfForwarder, error) { return bpfForwarder{}, nil },
		decode: func(bpfForwarder) Forwarder { return Forwarder{} },
	}
}

func memberCodec() codec[Member, bpfMember] {
	return codec[Member, bpfMember]{
		encode: func(Member) (bpfMember, error) { return bpfMember{}, nil },
		decode: func(bpfMember) Member { return Member{} },
	}
}
