package masquerade

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/test/netns"
)

var dualStack = []Pool{pool("10.0.0.0/16", true), pool("10.2.0.0/16", false), pool("fd00::/64", true)}

// fakeTable is a table without a kernel, which counts its writes.
func fakeTable() (t table, writes *int) {
	var found []string
	writes = new(int)
	t.read = func(context.Context) ([]string, bool, error) { return found, len(found) > 0, nil }
	t.write = func(_ context.Context, rules []rule) error {
		*writes++
		found = comments(rules)
		return nil
	}
	return t, writes
}

func TestEnsureOnFake(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	table, writes := fakeTable()
	steps := []struct {
		name  string
		pools []Pool
		write bool
	}{
		{"no pool", nil, false},
		{"first", dualStack, true},
		{"the same", dualStack, false},
		{"a pool fewer", dualStack[:2], true},
		{"none", nil, true},
		{"still none", nil, false},
	}
	for _, step := range steps {
		before := *writes
		if err := table.ensure(ctx, step.pools); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if wrote := *writes > before; wrote != step.write {
			t.Errorf("%s: wrote is %v, want %v", step.name, wrote, step.write)
		}
		if ok, err := table.present(ctx, step.pools); !ok || err != nil {
			t.Errorf("%s: not present afterwards (%v)", step.name, err)
		}
	}
}

func nft(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// inNamespace runs fn in a network namespace of its own.
func inNamespace(t *testing.T, fn func(context.Context)) {
	t.Helper()
	netns.New(t).Do(t, func() { fn(context.Background()) })
}

func wantPresent(t *testing.T, pools []Pool, want bool) {
	t.Helper()
	got, err := Present(context.Background(), pools)
	if err != nil || got != want {
		t.Errorf("present is %v (%v), want %v", got, err, want)
	}
}

func TestEnsureOnKernel(t *testing.T) {
	t.Parallel()
	inNamespace(t, func(ctx context.Context) {
		nft(t, "add", "table", "inet", "foreign")
		wantPresent(t, dualStack, false)
		for range 2 {
			if err := Ensure(ctx, dualStack); err != nil {
				t.Fatal(err)
			}
			wantPresent(t, dualStack, true)
		}
		table := nft(t, "list", "table", "inet", tableName)
		for _, part := range []string{
			"type nat hook postrouting priority srcnat",
			"ip saddr @ip-masqueraded ip daddr != @ip-pools masquerade",
			"ip6 saddr @ip6-masqueraded ip6 daddr != @ip6-pools masquerade",
			"elements = { 10.0.0.0/16 }",
			"elements = { 10.0.0.0/16, 10.2.0.0/16 }",
			"elements = { fd00::/64 }",
		} {
			if !strings.Contains(strings.Join(strings.Fields(table), " "), part) {
				t.Errorf("the table has no %q:\n%s", part, table)
			}
		}

		wantPresent(t, dualStack[:1], false)
		nft(t, "flush", "chain", "inet", tableName, chainName)
		wantPresent(t, dualStack, false)
		if err := Ensure(ctx, dualStack); err != nil {
			t.Fatal(err)
		}
		wantPresent(t, dualStack, true)

		for range 2 {
			if err := Remove(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if left := strings.TrimSpace(nft(t, "list", "tables")); left != "table inet foreign" {
			t.Errorf("tables left: %q", left)
		}
	})
}

func TestEnsureWritesOnlyWhatDiffers(t *testing.T) {
	t.Parallel()
	inNamespace(t, func(ctx context.Context) {
		if err := Ensure(ctx, dualStack); err != nil {
			t.Fatal(err)
		}
		before := nft(t, "--handle", "list", "ruleset")
		if err := Ensure(ctx, dualStack); err != nil {
			t.Fatal(err)
		}
		// A rewritten rule would have a new handle.
		if after := nft(t, "--handle", "list", "ruleset"); after != before {
			t.Errorf("the rules were written again:\n%s\n%s", before, after)
		}
	})
}

func TestEnsureFailures(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	table, _ := fakeTable()
	read := table.read

	table.read = func(context.Context) ([]string, bool, error) { return nil, false, os.ErrPermission }
	wantRefused(t, table.ensure(ctx, dualStack), "reading nftables table calico-cni", "root")

	table.read = read
	table.write = func(context.Context, []rule) error { return os.ErrNotExist }
	wantRefused(t, table.ensure(ctx, dualStack), "writing nftables table calico-cni", "nft_masq", "natOutgoing")
	if err := table.ensure(ctx, nil); err != nil {
		t.Errorf("nothing to do is written: %v", err)
	}
}

func wantRefused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil || cnierr.CodeOf(err) != cnierr.NetlinkRefused {
		t.Fatalf("error is %v, want code %d", err, cnierr.NetlinkRefused)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error does not say %q: %v", part, err)
		}
	}
}

// TestDeadline: a kernel that does not answer is not waited for longer than the
// verb may take.
func TestDeadline(t *testing.T) {
	t.Parallel()
	inNamespace(t, func(ctx context.Context) {
		over, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
		defer cancel()
		wantRefused(t, Ensure(over, dualStack), "nftables table calico-cni", "timeout")
		wantPresent(t, dualStack, false)
	})
}

func TestEnableForwarding(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		value, err := os.ReadFile(sysctlRoot + path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(value))
	}
	inNamespace(t, func(ctx context.Context) {
		for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile(sysctlRoot+path, []byte("0"), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := EnableForwarding(ctx, true, false); err != nil {
			t.Fatal(err)
		}
		if v4, v6 := read("ipv4/ip_forward"), read("ipv6/conf/all/forwarding"); v4 != "1" || v6 != "0" {
			t.Errorf("after enabling IPv4: IPv4 %s, IPv6 %s", v4, v6)
		}
		for range 2 {
			if err := EnableForwarding(ctx, true, true); err != nil {
				t.Fatal(err)
			}
		}
		if v6 := read("ipv6/conf/all/forwarding"); v6 != "1" {
			t.Errorf("after enabling IPv6: %s", v6)
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		wantRefused(t, EnableForwarding(cancelled, true, false), "net.ipv4.ip_forward")
	})
}
