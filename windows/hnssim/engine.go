package hnssim

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"calico-cni/windows/hns"
)

// Kind is a kind of object of HNS.
type Kind string

// The kinds that are simulated.
const (
	Network   Kind = "Network"
	Endpoint  Kind = "Endpoint"
	Namespace Kind = "Namespace"
)

// Never is a delay that does not end.
const Never = time.Duration(1<<63 - 1)

// Profile is how a simulated host behaves. Change it with Engine.Change.
type Profile struct {
	Version hns.Version
	Build   int
	// ManagementDelay passes from a network's creation until it shows its
	// ProviderAddress and, on Overlay, DrMacAddress; InterfaceDelay until the
	// vEthernet interface has the address.
	ManagementDelay, InterfaceDelay time.Duration
	// NoProviderAddress: L2Bridge networks show none.
	NoProviderAddress bool
	// RefuseHostRoute: the build is too old for the policy.
	RefuseHostRoute bool
	// KeepMetadataRoutes: making a switch leaves them.
	KeepMetadataRoutes bool
}

// Engine is a simulated host. Its time stands still unless it is advanced, or
// told to follow the real one. It is safe for concurrent use.
type Engine struct {
	mu         sync.Mutex
	profile    Profile
	unassumed  map[Assumption]bool
	elapsed    time.Duration
	realSince  time.Time
	networks   []*network
	endpoints  []*endpoint
	namespaces []*namespace
	adapter    adapter
	interfaces []hns.Interface
	forwarding map[int]bool
	routes     []hns.HostRoute
	faults     []*Fault
	calls      []Call
	operations []string
	findings   []string
	quiet      int
	shown      int
	misplaced  netip.Addr
	lock       chan struct{}
	locked     bool
}

// network is a network as the engine keeps it.
type network struct {
	hns.Network
	made time.Duration
}

type endpoint struct{ hns.Endpoint }

type namespace struct{ hns.Namespace }

// New returns a host of Windows Server 2022 with one adapter, a default route
// and two metadata routes.
func New() *Engine {
	e := &Engine{
		profile:    Profile{Version: hns.Version{Major: 13, Minor: 2}, Build: 20348},
		unassumed:  map[Assumption]bool{},
		adapter:    newAdapter(),
		forwarding: map[int]bool{},
		lock:       make(chan struct{}, 1),
	}
	e.interfaces = []hns.Interface{e.adapter.nic}
	e.routes = e.adapter.routes()
	e.namespaces = []*namespace{{hns.Namespace{ID: newID(), Type: hns.NamespaceHostDefault, SchemaVersion: hns.Schema2()}}}
	return e
}

// newID is a GUID. It is random so that nothing can rely on an order.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Change changes how the host behaves from now on.
func (e *Engine) Change(change func(*Profile)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.profile)
}

// Assume switches an assumption on or off.
func (e *Engine) Assume(assumption Assumption, on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unassumed[assumption] = !on
}

func (e *Engine) assumes(assumption Assumption) bool { return !e.unassumed[assumption] }

// Advance lets time pass.
func (e *Engine) Advance(by time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.elapsed += by
}

// FollowRealTime lets time pass as it really does.
func (e *Engine) FollowRealTime() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.realSince = time.Now()
}

// Pause is what waits in simulated time: it lets it pass.
func (e *Engine) Pause(ctx context.Context, length time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.Advance(length)
	return nil
}

func (e *Engine) now() time.Duration {
	if e.realSince.IsZero() {
		return e.elapsed
	}
	return e.elapsed + time.Since(e.realSince)
}

// reached reports whether a delay that began at a time is over.
func (e *Engine) reached(since, delay time.Duration) bool {
	return delay != Never && e.now()-since >= delay
}

// adapter is the host's network card, whose address the first network's switch
// takes over.
type adapter struct {
	nic     hns.Interface
	gateway netip.Addr
}

// The interface numbers of the adapter, of the switch's own interface, and of
// the first one that an endpoint makes.
const (
	adapterIndex  = 4
	switchIndex   = 10
	endpointIndex = 20
)

func newAdapter() adapter {
	return adapter{
		nic: hns.Interface{
			Index: adapterIndex, Name: "Ethernet", MAC: net.HardwareAddr{0x00, 0x15, 0x5d, 0x10, 0x20, 0x30},
			Addresses: []netip.Prefix{netip.MustParsePrefix("172.20.41.103/19")},
		},
		gateway: netip.MustParseAddr("172.20.32.1"),
	}
}

func (a adapter) address() netip.Addr { return a.nic.Addresses[0].Addr() }

func (a adapter) routes() []hns.HostRoute {
	return []hns.HostRoute{
		{Destination: netip.MustParsePrefix("0.0.0.0/0"), Gateway: a.gateway, Interface: a.nic.Index, Metric: 25},
		{Destination: netip.MustParsePrefix("169.254.169.254/32"), Gateway: a.gateway, Interface: a.nic.Index, Metric: 30, Persistent: true},
		{Destination: netip.MustParsePrefix("169.254.169.253/32"), Gateway: a.gateway, Interface: a.nic.Index, Metric: 31},
	}
}

// spelled returns an id in the case that is due: callers must not rely on one.
func (e *Engine) spelled(id string) string {
	if id == "" {
		return ""
	}
	if e.shown++; e.shown%3 == 0 {
		return strings.ToUpper(id)
	}
	return strings.ToLower(id)
}

func (e *Engine) findNetwork(id string) *network {
	return first(e.networks, func(n *network) bool { return hns.SameID(n.ID, id) })
}

func (e *Engine) findEndpoint(id string) *endpoint {
	return first(e.endpoints, func(n *endpoint) bool { return hns.SameID(n.ID, id) })
}

func (e *Engine) findNamespace(id string) *namespace {
	return first(e.namespaces, func(n *namespace) bool { return hns.SameID(n.ID, id) })
}

func first[T any](objects []*T, is func(*T) bool) *T {
	if at := slices.IndexFunc(objects, is); at >= 0 {
		return objects[at]
	}
	return nil
}

func without[T any](objects []*T, one *T) []*T {
	return slices.DeleteFunc(objects, func(o *T) bool { return o == one })
}
