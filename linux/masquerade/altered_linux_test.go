package masquerade

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"calico-cni/test/netns"
)

// TestEnsureRepairs: whatever somebody did to the table, it is noticed and put
// right, and nobody else's is touched.
func TestEnsureRepairs(t *testing.T) {
	t.Parallel()
	const chain = "inet " + tableName + " " + chainName
	alterations := map[string][]string{
		"table switched off": {"add table inet " + tableName + " { flags dormant ; }"},
		"chain deleted":      {"flush chain " + chain, "delete chain " + chain},
		"chain without hook": {"flush chain " + chain, "delete chain " + chain, "add chain " + chain},
		"chain on another hook": {"flush chain " + chain, "delete chain " + chain,
			"add chain " + chain + " { type nat hook prerouting priority -100 ; }"},
		"chain of another type, with our comments": {"flush chain " + chain, "delete chain " + chain,
			"add chain " + chain + " { type filter hook forward priority 0 ; }", ours(0), ours(1)},
		"chain that drops":                      {"add chain " + chain + " { type nat hook postrouting priority 100 ; policy drop ; }"},
		"a rule more":                           {"add rule " + chain + " accept"},
		"rules in another order":                {"flush chain " + chain, ours(1), ours(0)},
		"a set that lost a pool, with its rule": {"flush chain " + chain, "flush set inet " + tableName + " ip-pools"},
	}
	for name, commands := range alterations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inNamespace(t, func(ctx context.Context) {
				foreign := "table inet theirs { chain " + chainName + " { type nat hook postrouting priority srcnat ; masquerade ; } ; }"
				nft(t, foreign)
				before := nft(t, "list", "table", "inet", "theirs")
				if err := Ensure(ctx, dualStack); err != nil {
					t.Fatal(err)
				}
				right := nft(t, "list", "table", "inet", tableName)
				for _, command := range commands {
					nft(t, command)
				}
				wantPresent(t, dualStack, false)
				if err := Ensure(ctx, dualStack); err != nil {
					t.Fatal(err)
				}
				wantPresent(t, dualStack, true)
				if after := nft(t, "list", "table", "inet", tableName); after != right {
					t.Errorf("the table is\n%s\nwant\n%s", after, right)
				}
				if after := nft(t, "list", "table", "inet", "theirs"); after != before {
					t.Errorf("the other table is\n%s\nwas\n%s", after, before)
				}
			})
		})
	}
}

// ours is the command that adds a rule with the comment of our n-th one.
func ours(n int) string {
	return fmt.Sprintf("add rule inet %s %s accept comment %q", tableName, chainName, comments(desiredRules(dualStack))[n])
}

// TestManyPoolsManyProcesses: thousands of pools, and ADDs that all find the
// table missing.
func TestManyPoolsManyProcesses(t *testing.T) {
	t.Parallel()
	var pools []Pool
	for i := range 2000 {
		address := netip.AddrFrom4([4]byte{10, byte(i >> 7), byte(i << 1), 0})
		pools = append(pools, Pool{CIDR: netip.PrefixFrom(address, 24), NATOutgoing: i%3 > 0})
	}
	ns := netns.New(t)
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			ns.Do(t, func() {
				if err := Ensure(context.Background(), pools); err != nil {
					t.Error(err)
				}
			})
		})
	}
	group.Wait()
	ns.Do(t, func() {
		wantPresent(t, pools, true)
		if rules := strings.Count(nft(t, "list", "table", "inet", tableName), " masquerade "); rules != 1 {
			t.Errorf("%d rules masquerade, want 1", rules)
		}
	})
}
