package masquerade

import (
	"context"
	"errors"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"

	"calico-cni/pkg/cnierr"
)

// The one table that is ours, and its chain.
const (
	tableName = "calico-cni"
	chainName = "postrouting"
)

// Ensure makes the table right for the pools. Only what differs is written, in
// one transaction; without a pool with natOutgoing there is no table.
func Ensure(ctx context.Context, pools []Pool) error { return kernelTable().ensure(ctx, pools) }

// Present reports whether the table does what the pools need.
func Present(ctx context.Context, pools []Pool) (bool, error) {
	return kernelTable().present(ctx, pools)
}

// Remove deletes the table; one that is gone is no error.
func Remove(ctx context.Context) error { return kernelTable().ensure(ctx, nil) }

// table is how the table is read and written. Reading asks the kernel for the
// comments only, because it is done by every ADD.
type table struct {
	// read lists the comments of the chain's rules; exists is false if there
	// is no such table.
	read func(context.Context) (found []string, exists bool, err error)
	// write replaces the table in one transaction; without rules there is none.
	write func(context.Context, []rule) error
}

func kernelTable() table { return table{read: readComments, write: replace} }

func (t table) present(ctx context.Context, pools []Pool) (bool, error) {
	want := desiredRules(pools)
	found, exists, err := t.read(ctx)
	if err != nil {
		return false, cnierr.New(cnierr.NetlinkRefused,
			"reading nftables table %s: %w; the plugin must run as root and the kernel must have nf_tables", tableName, err)
	}
	return exists == (len(want) > 0) && slices.Equal(found, comments(want)), nil
}

func (t table) ensure(ctx context.Context, pools []Pool) error {
	if ok, err := t.present(ctx, pools); ok || err != nil {
		return err
	}
	if err := t.write(ctx, desiredRules(pools)); err != nil {
		return cnierr.New(cnierr.NetlinkRefused,
			"writing nftables table %s: %w; the kernel must have nf_tables with masquerading (nft_masq), or set natOutgoing to false on the pools", tableName, err)
	}
	return nil
}

// works reports whether this is our chain, and where its rules are obeyed and
// everything else passes.
func works(chain *nftables.Chain) bool {
	return chain.Table.Name == tableName && chain.Name == chainName && chain.Type == nftables.ChainTypeNAT &&
		chain.Hooknum != nil && *chain.Hooknum == *nftables.ChainHookPostrouting &&
		chain.Priority != nil && *chain.Priority == *nftables.ChainPriorityNATSource &&
		(chain.Policy == nil || *chain.Policy == nftables.ChainPolicyAccept)
}

// readComments asks the kernel for the rules of our chain, in the network
// namespace of the calling thread.
func readComments(ctx context.Context) (found []string, exists bool, err error) {
	conn, err := connect(ctx)
	if err != nil {
		return nil, false, err
	}
	// A list of rules does not tell a missing table from an empty one.
	ours, err := conn.ListTableOfFamily(tableName, nftables.TableFamilyINet)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, false, err
	}
	// We set no flag; a table may be switched off by one.
	if ours.Flags != 0 || !slices.ContainsFunc(chains, works) {
		return nil, true, nil
	}
	rules, err := conn.GetRules(ours, &nftables.Chain{Name: chainName, Table: ours})
	if err != nil {
		return nil, false, err
	}
	for _, r := range rules {
		comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
		found = append(found, comment)
	}
	return found, true, nil
}
