package ipam

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// hostNotes are the claims that the processes of a host tell each other.
type hostNotes struct {
	claims Claims
	clock  *clock
}

func (n *hostNotes) Recent() Claims         { return maps.Clone(n.claims) }
func (n *hostNotes) Note(cidr netip.Prefix) { n.claims[cidr] = n.clock.Now() }

// early runs a request whose first read is answered before other processes of
// its host have their turn. It returns how often the affinities are listed after
// that.
func (c *cluster) early(request Request, meanwhile func()) (result Result, lists int, err error) {
	c.Helper()
	notes := &hostNotes{Claims{}, c.clock}
	options := Options{Now: c.clock.Now, Claimed: notes}
	c.ipam = New(c.store, options)
	request.Before = notes.Recent()
	_, held, err := datastore.Prefetch(c.ctx(), c.store, nil, AssignQueries(request))
	if err != nil {
		c.Fatal(err)
	}
	meanwhile()
	c.store.ForgetCalls()
	result, err = New(held, options).Assign(c.ctx(), request)
	for _, call := range c.store.Calls() {
		if slices.Contains(call.Queries, ownAffinities(request.Host, model.IPv4)) {
			lists++
		}
	}
	return result, lists, err
}

// TestEarly: what a process reads while it waits for its turn serves it as if it
// had read afterwards.
func TestEarly(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// before the early read, and between it and the request.
		before, meanwhile func(*cluster)
		want              string
		// lists is how often the affinities are listed after that.
		lists int
	}{
		"own block has room": {
			before:    func(c *cluster) { c.assign("worker-b", "c0", 1) },
			meanwhile: func(c *cluster) { c.assign("worker-b", "c1", 1) },
			want:      "10.77.0.2/26",
		},
		"nobody claimed anything": {
			before:    func(*cluster) {},
			meanwhile: func(*cluster) {},
			want:      "10.77.0.0/26",
		},
		"first block was claimed meanwhile": {
			before:    func(*cluster) {},
			meanwhile: func(c *cluster) { c.assign("worker-b", "c1", 1) },
			want:      "10.77.0.1/26",
		},
		"first block was claimed and filled meanwhile": {
			before:    func(*cluster) {},
			meanwhile: func(c *cluster) { c.assign("worker-b", "c1", 64) },
			want:      "10.77.0.64/26", lists: 1,
		},
		"own block was filled and the next one claimed meanwhile": {
			before:    func(c *cluster) { c.assign("worker-b", "c0", 1) },
			meanwhile: func(c *cluster) { c.assign("worker-b", "c1", 64) },
			want:      "10.77.0.65/26",
		},
		"claim was noted by a process that died": {
			before:    func(*cluster) {},
			meanwhile: func(c *cluster) { c.ipam.claimed.Note(netip.MustParsePrefix("10.77.0.0/26")) },
			want:      "10.77.0.0/26", lists: 1,
		},
		"notes are of others": {
			before: func(*cluster) {},
			meanwhile: func(c *cluster) {
				c.assign("worker-c", "c1", 1)
				c.ipam.claimed.Note(netip.MustParsePrefix("fd00::/122"))
			},
			want: "10.77.0.0/26", lists: 1,
		},
		"own block was released meanwhile": {
			before: func(c *cluster) { c.assign("worker-b", "c0", 1) },
			meanwhile: func(c *cluster) {
				c.release("c0")
				if err := c.ipam.ReleaseHostAffinities(c.ctx(), model.AffinityHost, "worker-b", true); err != nil {
					c.Fatal(err)
				}
			},
			want: "10.77.0.0/26",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forBothKinds(t, func(t *testing.T, c *cluster) {
				c.p26()
				test.before(c)
				got, lists, err := c.early(c.request("worker-b", "c9", 1), func() { test.meanwhile(c) })
				if err != nil {
					t.Fatal(err)
				}
				if lists != test.lists {
					t.Errorf("the affinities were listed %d times, want %d", lists, test.lists)
				}
				c.want(got.IPv4.Addresses, test.want)
			})
		})
	}
}

// TestEarlyLimit: a limit holds for what was claimed meanwhile, too.
func TestEarlyLimit(t *testing.T) {
	t.Parallel()
	forBothKinds(t, func(t *testing.T, c *cluster) {
		c.p26()
		request := c.request("worker-b", "c9", 1)
		request.MaxBlocks = 1
		_, _, err := c.early(request, func() { c.assign("worker-b", "c1", 64) })
		if cnierr.CodeOf(err) != cnierr.BlockLimit {
			t.Errorf("error %v, want that of the limit", err)
		}
	})
}
