package controller

import (
	"slices"

	netv1 "github.com/mnicloud/mnicloud/network/api/v1alpha1"
	"github.com/mnicloud/mnicloud/network/routing"
)

// share is what a NATGateway gets of its VPC's Subnets.
type share struct {
	// serves are the names of the Subnets that it serves, sorted.
	serves []string
	// missing it names, and they do not exist in the VPC; foreign are of another VPC.
	missing, foreign []string
	// taken it asks for, and another gateway serves them.
	taken []takenSubnet
}

// takenSubnet is a Subnet's name and that of the gateway that serves it; led tells that the Subnet's RouteTable leads to that one.
type takenSubnet struct {
	subnet, by string
	led        bool
}

func (t takenSubnet) String() string {
	text := "Subnet " + t.subnet + " by NATGateway " + t.by
	if t.led {
		text += ", to which its RouteTable leads"
	}
	return text
}

// ledSubnets are the gateways that the RouteTables of Subnets lead to, by the Subnets' names.
func ledSubnets(subnets []netv1.Subnet, tables []netv1.RouteTable) map[string]string {
	led := map[string]string{}
	for i := range subnets {
		for j := range tables {
			if name := routing.Gateway(&tables[j].Spec); name != "" && tables[j].Name == subnets[i].Spec.RouteTable && tables[j].Spec.VPC == subnets[i].Spec.VPC {
				led[subnets[i].Name] = name
			}
		}
	}
	return led
}

// shareOf decides which Subnets a gateway serves. subnets are those of all VPCs that it may name, gateways those of its VPC, itself
// among them, and led the gateways that Subnets' tables lead to, which nobody else serves then. One that a gateway names is no longer
// served by one that names none; otherwise who serves it keeps it, and the older one gets it. A gateway that is going serves nothing.
func shareOf(gateway *netv1.NATGateway, subnets []netv1.Subnet, gateways []netv1.NATGateway, led map[string]string) share {
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
	for name, to := range led {
		if to == gateway.Name && byName[name].Spec.VPC == gateway.Spec.VPC {
			wanted = append(wanted, name)
		}
	}
	slices.Sort(wanted)
	for _, name := range slices.Compact(wanted) {
		subnet := byName[name]
		to, isLed := led[name]
		switch {
		case subnet == nil:
			s.missing = append(s.missing, name)
		case subnet.Spec.VPC != gateway.Spec.VPC:
			s.foreign = append(s.foreign, name)
		case isLed && to != gateway.Name:
			s.taken = append(s.taken, takenSubnet{name, to, true})
		default:
			if rival, ok := natRival(gateway, name, gateways, isLed); ok {
				s.taken = append(s.taken, takenSubnet{subnet: name, by: rival.Name})
			} else {
				s.serves = append(s.serves, name)
			}
		}
	}
	return s
}

// natRival is the gateway that serves a Subnet before the given one, which asks for it, or to which the Subnet is led.
func natRival(gateway *netv1.NATGateway, subnet string, gateways []netv1.NATGateway, led bool) (*netv1.NATGateway, bool) {
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
		case led || !otherWants:
		case otherNames && !named:
			return other, true
		case named && !otherNames:
		case otherServes == serves && older(other, gateway):
			return other, true
		}
	}
	return nil, false
}
