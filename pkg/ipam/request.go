package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/model"
)

// Reservation keeps addresses at both ends of a new block from being handed
// out (IPAM contract 2.1).
type Reservation = model.Reservation

// WindowsReservation is what Windows keeps in every IPv4 block: the network
// address, the gateway, the host's endpoint, and the last one (IPAM contract
// 8).
func WindowsReservation() *Reservation {
	return &Reservation{Start: 3, End: 1, HandleID: model.ReserveHandleID, Note: "windows host rsvd"}
}

// Request asks for any addresses (IPAM contract 4).
type Request struct {
	Host     string
	HandleID string
	// Attributes tell the owner: node, timestamp, and the pod if there is one.
	Attributes map[string]string
	// Count4 and Count6 are the numbers of addresses wanted; 0 leaves a family
	// out.
	Count4, Count6 int
	// Pools4 and Pools6 are the CIDRs of the pools to use, in this order;
	// empty: those that select the node and the namespace.
	Pools4, Pools6 []netip.Prefix
	// MaxBlocks limits the blocks of the host beside the cluster's own limit;
	// 0: no limit.
	MaxBlocks int
	// Reserve and Reserve6 are kept free in new blocks of IPv4 and IPv6.
	Reserve, Reserve6 *Reservation
	// Use is what the addresses are for: model.UseWorkload, model.UseTunnel.
	Use             string
	NamespaceLabels map[string]string
	// RequireStrictAffinity refuses the request unless the cluster's strict
	// affinity is on (IPAM contract 8.1).
	RequireStrictAffinity bool
	// OncePerFamily refuses the request with ErrHandleHolds if the handle
	// holds an address of a family asked for.
	OncePerFamily bool
	// Before is what the host had claimed (ClaimedBlocks) when the first read was
	// sent, if that was before it was this process's turn; nil: it was not.
	Before Claims
}

func (r *Request) count(family model.Family) int {
	if family == model.IPv4 {
		return r.Count4
	}
	return r.Count6
}

func (r *Request) reserve(family model.Family) *Reservation {
	if family == model.IPv4 {
		return r.Reserve
	}
	return r.Reserve6
}

func (r *Request) pools(family model.Family) []netip.Prefix {
	if family == model.IPv4 {
		return r.Pools4
	}
	return r.Pools6
}

// families are those that the request wants addresses of, IPv4 first.
func (r *Request) families() []model.Family {
	var out []model.Family
	for _, family := range []model.Family{model.IPv4, model.IPv6} {
		if r.count(family) > 0 {
			out = append(out, family)
		}
	}
	return out
}

// Assignment is what one family got.
type Assignment struct {
	Family model.Family
	// Addresses carry the prefix length of their block.
	Addresses []netip.Prefix
	Requested int
	// Messages say why there are fewer than requested, in the words that other
	// tools know (IPAM contract 7.4).
	Messages []string
	// Reasons say it per pool.
	Reasons []string
	// Pools are the pools that the addresses belong to, in the order of
	// Addresses.
	Pools []*model.IPPool
	// Short is the text known to other tools if fewer addresses were assigned
	// than requested, else empty: "Assigned 0 out of 1 requested IPv4
	// addresses; <message>".
	Short string
}

// summarize sets Short.
func (a *Assignment) summarize(reserve *Reservation) {
	a.Short = ""
	if len(a.Addresses) >= a.Requested {
		return
	}
	parts := []string{fmt.Sprintf("Assigned %d out of %d requested %s addresses", len(a.Addresses), a.Requested, a.Family)}
	parts = append(parts, a.Messages...)
	if reserve != nil {
		parts = append(parts, "HostReservedAttr: "+reserve.HandleID)
	}
	a.Short = strings.Join(parts, "; ")
}

// Result is what a request got.
type Result struct{ IPv4, IPv6 Assignment }

// Err is nil if every family got what was requested. Otherwise it has code 102
// and the text that other tools know, followed by the reason per pool.
func (r Result) Err() error {
	for _, a := range []Assignment{r.IPv4, r.IPv6} {
		if a.Short == "" {
			continue
		}
		text := a.Short
		if len(a.Reasons) > 0 {
			text += "; " + strings.Join(a.Reasons, "; ")
		}
		return cnierr.New(cnierr.AddressesExhausted, "failed to request %s addresses: %s", a.Family, text)
	}
	return nil
}

func (r *Result) assignment(family model.Family) *Assignment {
	if family == model.IPv4 {
		return &r.IPv4
	}
	return &r.IPv6
}

// AttributeInstance is the owner attribute that names a virtual machine's
// instance; no other owner has it.
const AttributeInstance = "vmi-name"

// timestampLayout is Go's default text of a UTC time (datastore contract 4.2).
const timestampLayout = "2006-01-02 15:04:05.999999999 +0000 UTC"

// FormatTimestamp is the text of the owner attribute "timestamp".
func FormatTimestamp(t time.Time) string { return t.UTC().Format(timestampLayout) }

// parseTimestamp is the inverse of FormatTimestamp.
func parseTimestamp(text string) (time.Time, error) {
	t, err := time.Parse(timestampLayout, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("timestamp %q: %w", text, err)
	}
	return t, nil
}
