package operator

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"calico-cni/pkg/ipam"
	"calico-cni/pkg/model"
)

// printTables prints what calicoctl's "ipam show" prints (IPAM contract 12).
func printTables(w io.Writer, used *ipam.Usage, o options) error {
	switch {
	case o.configuration:
		return printTable(w, configurationTable(used.Config))
	case o.borrowed:
		if err := printTable(w, borrowedTable(used)); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "Allocations that do not tell their node: %d\n", used.WithoutNode)
		return err
	}
	return printTable(w, usageTable(used, o.blocks))
}

func usageTable(used *ipam.Usage, blocks bool) table {
	t := table{header: []string{"GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS RESERVED", "IPS FREE"}}
	for _, pool := range used.Pools {
		t.rows = append(t.rows, []string{
			"IP Pool", pool.CIDR.String(), pool.Total.String(), share(pool.InUse, pool.Total),
			share(pool.Reserved, pool.Total), share(pool.Free, pool.Total),
		})
		if blocks {
			t.rows = append(t.rows, blockRows(pool.Blocks)...)
		}
	}
	if blocks {
		t.rows = append(t.rows, blockRows(used.Orphans)...)
	}
	return t
}

func blockRows(blocks []ipam.BlockUsage) [][]string {
	var rows [][]string
	for _, block := range blocks {
		total := big.NewInt(int64(block.Total))
		rows = append(rows, []string{
			"Block", block.CIDR.String(), total.String(), share(big.NewInt(int64(block.InUse)), total),
			share(big.NewInt(int64(block.Reserved)), total), share(big.NewInt(int64(block.Free)), total),
		})
	}
	return rows
}

// share is a count with its percentage of the total, rounded to the nearest.
func share(count, total *big.Int) string {
	if total.Sign() == 0 {
		return count.String()
	}
	percent := new(big.Int).Mul(count, big.NewInt(200))
	percent.Add(percent, total).Div(percent, new(big.Int).Lsh(total, 1))
	return fmt.Sprintf("%s (%s%%)", count, percent)
}

func borrowedTable(used *ipam.Usage) table {
	t := table{header: []string{"IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "TYPE", "ALLOCATED-TO"}}
	for _, b := range used.Borrowed {
		t.rows = append(t.rows, []string{b.Addr.String(), b.Node, b.Block.String(), b.Owner, b.Type, b.AllocatedTo})
	}
	return t
}

func configurationTable(config *model.IPAMConfig) table {
	persistence := config.VMPersistence
	if persistence == "" {
		persistence = "Enabled"
	}
	return table{header: []string{"PROPERTY", "VALUE"}, rows: [][]string{
		{"StrictAffinity", strconv.FormatBool(config.StrictAffinity)},
		{"AutoAllocateBlocks", strconv.FormatBool(config.AutoAllocateBlocks)},
		{"MaxBlocksPerHost", strconv.Itoa(config.MaxBlocksPerHost)},
		{"KubeVirtVMAddressPersistence", persistence},
		{"IPCooldownSeconds", strconv.Itoa(config.CooldownSeconds)},
	}}
}

// addressDocument is the JSON form of show --ip.
type addressDocument struct {
	IP             string            `json:"ip"`
	Assigned       bool              `json:"assigned"`
	Handle         string            `json:"handle,omitempty"`
	Block          string            `json:"block,omitempty"`
	ActiveOwner    map[string]string `json:"activeOwner,omitempty"`
	AlternateOwner map[string]string `json:"alternateOwner,omitempty"`
}

func showAddress(ctx context.Context, p Process, o options, allocator *ipam.Allocator) (int, error) {
	found, err := allocator.Lookup(ctx, o.ip)
	if err != nil {
		return 0, err
	}
	doc := addressDocument{IP: o.ip.String(), Assigned: found != nil}
	if found != nil {
		doc.Handle, doc.Block = found.HandleID, found.Block.String()
		doc.ActiveOwner, doc.AlternateOwner = found.Attributes, found.Alternate
	}
	if o.json {
		return exitFine, printJSON(p.Stdout, doc)
	}
	_, err = io.WriteString(p.Stdout, doc.text())
	return exitFine, err
}

func (d addressDocument) text() string {
	if !d.Assigned {
		return d.IP + " is not assigned\n"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "IP %s is in use\n", d.IP)
	fmt.Fprintf(&out, "Handle ID: %s\nBlock: %s\n", d.Handle, d.Block)
	for _, owner := range []struct {
		title      string
		attributes map[string]string
	}{{"Active Owner Attributes", d.ActiveOwner}, {"Alternate Owner Attributes", d.AlternateOwner}} {
		if len(owner.attributes) == 0 {
			continue
		}
		fmt.Fprintf(&out, "%s:\n", owner.title)
		for _, key := range slices.Sorted(maps.Keys(owner.attributes)) {
			fmt.Fprintf(&out, "  %s: %s\n", key, owner.attributes[key])
		}
	}
	return out.String()
}
