package host

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
)

// membersSet is the name of the set of addresses that are never masqueraded towards.
const membersSet = "members"

// Masquerade is the nftables table that gives ordinary Pods' packets the node's address when they leave by the uplink, except
// towards members of the network, which know Pods by their own addresses.
type Masquerade struct {
	// Table is its name, one of our own.
	Table string
	// Uplink is the link to the outside.
	Uplink string
	// Infrastructure is the range of Pods' infrastructure addresses.
	Infrastructure netip.Prefix
}

// Ensure makes the table with these members. A table that is as it should be is not touched; when only members have changed,
// only the set is; otherwise the table is replaced in one transaction.
func (m Masquerade) Ensure(members []netip.Addr) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: m.Table}
	set := &nftables.Set{Table: table, Name: membersSet, KeyType: nftables.TypeIPAddr}
	if m.current(conn, table) {
		present, err := conn.GetSetElements(set)
		if err != nil {
			return fmt.Errorf("nftables set %s of table %s: %w", membersSet, m.Table, err)
		}
		add, remove := difference(present, elements(members))
		if len(add)+len(remove) == 0 {
			return nil
		}
		if err := conn.SetAddElements(set, add); err != nil {
			return err
		}
		if err := conn.SetDeleteElements(set, remove); err != nil {
			return err
		}
	} else if err := m.replace(conn, table, set, elements(members)); err != nil {
		return err
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables table %s: %w", m.Table, err)
	}
	return nil
}

// mark is kept with the rule and says what it was made from.
func (m Masquerade) mark() []byte {
	return fmt.Appendf(nil, "masquerade 1 %s %s", m.Uplink, m.Infrastructure)
}

// current tells whether the table's rule was made from the same configuration.
func (m Masquerade) current(conn *nftables.Conn, table *nftables.Table) bool {
	rules, err := conn.GetRules(table, &nftables.Chain{Table: table, Name: "postrouting"})
	return err == nil && len(rules) == 1 && bytes.Equal(rules[0].UserData, m.mark())
}

func (m Masquerade) replace(conn *nftables.Conn, table *nftables.Table, set *nftables.Set, members []nftables.SetElement) error {
	conn.AddTable(table) // a table must exist to be deleted
	conn.DelTable(table)
	conn.AddTable(table)
	if err := conn.AddSet(set, members); err != nil {
		return fmt.Errorf("nftables set %s of table %s: %w", membersSet, m.Table, err)
	}
	chain := conn.AddChain(&nftables.Chain{
		Table: table, Name: "postrouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	prefix := m.Infrastructure.Masked()
	mask := binaryutil.BigEndian.PutUint32(^uint32(0) << (32 - prefix.Bits()))
	uplink := make([]byte, 16)
	copy(uplink, m.Uplink)
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, UserData: m.mark(), Exprs: []expr.Any{
		// oifname UPLINK ip saddr INFRASTRUCTURE ip daddr != @members masquerade
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: uplink},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: mask, Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: prefix.Addr().AsSlice()},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
		&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID, Invert: true},
		&expr.Masq{},
	}})
	return nil
}

// Remove deletes the table. One that is not there is a success.
func (m Masquerade) Remove() error { return removeTable(m.Table) }

func removeTable(name string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: name}
	conn.AddTable(table)
	conn.DelTable(table)
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables table %s: %w", name, err)
	}
	return nil
}

func elements(members []netip.Addr) []nftables.SetElement {
	var all []nftables.SetElement
	for _, m := range members {
		all = append(all, nftables.SetElement{Key: m.AsSlice()})
	}
	return all
}

// difference is what must be added to and removed from present to make it want.
func difference(present, want []nftables.SetElement) (add, remove []nftables.SetElement) {
	missing := func(from, in []nftables.SetElement) (out []nftables.SetElement) {
		for _, e := range from {
			if !slices.ContainsFunc(in, func(o nftables.SetElement) bool { return bytes.Equal(o.Key, e.Key) }) {
				out = append(out, e)
			}
		}
		return out
	}
	return missing(want, present), missing(present, want)
}
