package datapath

import (
	"cmp"
	"net/netip"
)

func compareRules(a, b compiledRule) int {
	return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.protocol, b.protocol), cmp.Compare(a.bits, b.bits), cmp.Compare(a.match, b.match))
}

func peerKeyCodec() codec[peerKey, bpfPolicyPeerKey] {
	return codec[peerKey, bpfPolicyPeerKey]{
		encode: func(k peerKey) (bpfPolicyPeerKey, error) {
			address := k.prefix.Addr()
			return bpfPolicyPeerKey{
				PrefixLength: 32 + bits128(address, k.prefix.Bits()), Policy: uint32(k.policy), Address: toAddress(address),
			}, requireIPv4("peer", address)
		},
		decode: func(w bpfPolicyPeerKey) peerKey {
			address := fromAddress(w.Address)
			return peerKey{PolicyID(w.Policy), netip.PrefixFrom(address, bitsOf(address, w.PrefixLength-32))}
		},
	}
}

func peerCodec() codec[uint32, bpfPolicyPeer] {
	return codec[uint32, bpfPolicyPeer]{
		encode: func(class uint32) (bpfPolicyPeer, error) { return bpfPolicyPeer{Class: class}, nil },
		decode: func(w bpfPolicyPeer) uint32 { return w.Class },
	}
}

func ruleKeyCodec() codec[ruleKey, bpfPolicyRuleKey] {
	const fixed = 64 // bits of policy and class
	return codec[ruleKey, bpfPolicyRuleKey]{
		encode: func(k ruleKey) (bpfPolicyRuleKey, error) {
			return bpfPolicyRuleKey{
				PrefixLength: fixed + uint32(k.rule.bits), Policy: uint32(k.policy), Class: k.rule.class,
				Protocol: uint8(k.rule.protocol), Match: [2]uint8{uint8(k.rule.match >> 8), uint8(k.rule.match)},
			}, nil
		},
		decode: func(w bpfPolicyRuleKey) ruleKey {
			return ruleKey{PolicyID(w.Policy), compiledRule{
				class: w.Class, bits: uint8(w.PrefixLength - fixed), protocol: Protocol(w.Protocol), match: uint16(w.Match[0])<<8 | uint16(w.Match[1]),
			}}
		},
	}
}

func ruleCodec() codec[struct{}, bpfPolicyRule] {
	return codec[struct{}, bpfPolicyRule]{
		encode: func(struct{}) (bpfPolicyRule, error) { return bpfPolicyRule{}, nil },
		decode: func(bpfPolicyRule) struct{} { return struct{}{} },
	}
}
