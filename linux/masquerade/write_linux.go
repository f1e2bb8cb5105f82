package masquerade

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

const (
	// elementsPerMessage keeps the list of a message's elements below the
	// 64 KiB that a netlink attribute may have.
	elementsPerMessage = 512
	// sendBuffer holds the transaction of some ten thousand pools: a
	// transaction is one datagram.
	sendBuffer = 4 << 20
)

// connect opens a socket in the network namespace of the calling thread.
func connect(ctx context.Context) (*nftables.Conn, error) {
	return nftables.New(nftables.WithSockOptions(func(conn *netlink.Conn) error {
		deadline, _ := ctx.Deadline() // the zero time is none
		return conn.SetDeadline(deadline)
	}, func(conn *netlink.Conn) error {
		return conn.SetWriteBuffer(sendBuffer)
	}))
}

// replace replaces the table, whatever it holds: a chain of our name that is on
// another hook could not be changed into ours.
func replace(ctx context.Context, rules []rule) error {
	conn, err := connect(ctx)
	if err != nil {
		return err
	}
	table := &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	// Adding first makes the deletion of a missing table no error.
	conn.AddTable(table)
	conn.DelTable(table)
	if len(rules) > 0 {
		conn.AddTable(table)
		chain := conn.AddChain(&nftables.Chain{
			Table: table, Name: chainName, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		})
		for _, r := range rules {
			if err := add(conn, chain, r); err != nil {
				return err
			}
		}
	}
	return conn.Flush()
}

// header is where a family keeps the addresses in its header.
type header struct {
	protocol                    byte
	source, destination, length uint32
	key                         nftables.SetDatatype
}

func headerOf(keyword string) header {
	if keyword == "ip6" {
		return header{unix.NFPROTO_IPV6, 8, 24, 16, nftables.TypeIP6Addr} // RFC 8200, section 3
	}
	return header{unix.NFPROTO_IPV4, 12, 16, 4, nftables.TypeIPAddr} // RFC 791, section 3.1
}

func add(conn *nftables.Conn, chain *nftables.Chain, r rule) error {
	h := headerOf(r.keyword)
	sources, err := addSet(conn, chain.Table, r.keyword+"-masqueraded", h.key, r.sources)
	if err != nil {
		return fmt.Errorf("the pools with natOutgoing: %w", err)
	}
	all, err := addSet(conn, chain.Table, r.keyword+"-pools", h.key, r.all)
	if err != nil {
		return fmt.Errorf("all pools: %w", err)
	}
	const register = 1
	load := func(offset uint32) expr.Any {
		return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: h.length}
	}
	conn.AddRule(&nftables.Rule{
		Table: chain.Table, Chain: chain,
		UserData: userdata.AppendString(nil, userdata.TypeComment, r.comment()),
		Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{h.protocol}},
			load(h.source),
			&expr.Lookup{SourceRegister: register, SetName: sources.Name, SetID: sources.ID},
			load(h.destination),
			&expr.Lookup{SourceRegister: register, SetName: all.Name, SetID: all.ID, Invert: true},
			&expr.Masq{},
		},
	})
	return nil
}

// addSet adds a set that nobody can change while a rule looks into it: the
// rule's comment stays true.
func addSet(conn *nftables.Conn, table *nftables.Table, name string, key nftables.SetDatatype, prefixes []netip.Prefix) (*nftables.Set, error) {
	set := &nftables.Set{Table: table, Name: name, Constant: true, Interval: true, KeyType: key}
	if err := conn.AddSet(set, nil); err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(elements(prefixes), elementsPerMessage) {
		if err := conn.SetAddElements(set, chunk); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// elements are the starts of intervals and the addresses behind their ends; the
// last address of a family has none behind it, and its interval no end.
func elements(prefixes []netip.Prefix) []nftables.SetElement {
	var out []nftables.SetElement
	for _, i := range intervals(prefixes) {
		out = append(out, nftables.SetElement{Key: i.first.AsSlice()})
		if behind := i.last.Next(); behind.IsValid() {
			out = append(out, nftables.SetElement{Key: behind.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}
