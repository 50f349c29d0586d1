package controller

import (
	"slices"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
)

// share is what a NATGateway gets of its VPC's Subnets.
type share struct {
	// serves are the names of the Subnets that it serves, sorted.
	serves []string
	// missing it names, and they do not exist in the VPC; foreign are of another VPC.
	missing, foreign []string
	// taken it asks for, and another gateway serves them: the Subnet's name and the gateway's.
	taken []takenSubnet
}

type takenSubnet struct{ subnet, by string }

// shareOf decides which Subnets a gateway serves. subnets are those of all VPCs that it may name, gateways those of its VPC, itself
// among them. One that a gateway names is no longer served by one that names none; otherwise who serves it keeps it, and the older
// one gets it. A gateway that is going serves nothing.
func shareOf(gateway *netv1.NATGateway, subnets []netv1.Subnet, gateways []netv1.NATGateway) share {
	var s share
	if !gateway.DeletionTimestamp.IsZero() {
		return s
	}
	byName := map[string]*netv1.Subnet{}
	for i := range subnets {
		byName[subnets[i].Name] = &subnets[i]
	}
	wanted := slices.Clone(gateway.Spec.Subnets)
	if len(wanted) == 0 {
		for name, subnet := range byName {
			if subnet.Spec.VPC == gateway.Spec.VPC {
				wanted = append(wanted, name)
			}
		}
	}
	slices.Sort(wanted)
	for _, name := range wanted {
		subnet := byName[name]
		switch {
		case subnet == nil:
			s.missing = append(s.missing, name)
		case subnet.Spec.VPC != gateway.Spec.VPC:
			s.foreign = append(s.foreign, name)
		default:
			if rival, ok := natRival(gateway, name, gateways); ok {
				s.taken = append(s.taken, takenSubnet{name, rival.Name})
			} else {
				s.serves = append(s.serves, name)
			}
		}
	}
	return s
}

// natRival is the gateway that serves a Subnet before the given one, which asks for it.
func natRival(gateway *netv1.NATGateway, subnet string, gateways []netv1.NATGateway) (*netv1.NATGateway, bool) {
	serves := slices.Contains(gateway.Status.Subnets, subnet)
	named := len(gateway.Spec.Subnets) > 0
	for i := range gateways {
		other := &gateways[i]
		if other.UID == gateway.UID {
			continue
		}
		otherServes := slices.Contains(other.Status.Subnets, subnet)
		otherNames := slices.Contains(other.Spec.Subnets, subnet)
		otherWants := other.DeletionTimestamp.IsZero() && (otherNames || len(other.Spec.Subnets) == 0)
		switch {
		case otherServes && !serves:
			return other, true // also one that has to give it up: it does so first
		case !otherWants:
		case otherNames && !named:
			return other, true
		case named && !otherNames:
		case otherServes == serves && older(other, gateway):
			return other, true
		}
	}
	return nil, false
}
