package linux

import (
	"fmt"
	"net/netip"
)

// Scopes of routes, as the kernel numbers them.
const (
	scopeUniverse = 0
	scopeLink     = 253
)

// route is what matters of a route: where to, through what, on which link.
type route struct {
	destination netip.Prefix
	gateway     netip.Addr
	link        int
	scope       int
	// discard is the type of a route that drops packets, as ip-route(8) calls
	// it; such a route has no interface.
	discard string
}

// String describes the route the way ip-route(8) would.
func (r route) String() string {
	scope := "global"
	switch r.scope {
	case scopeUniverse:
	case scopeLink:
		scope = "link"
	default:
		scope = fmt.Sprint(r.scope)
	}
	if r.discard != "" {
		return r.discard + " " + r.destination.String()
	}
	return fmt.Sprintf("%s scope %s, interface index %d", r.destination, scope, r.link)
}

// sameDestination compares address and prefix length: a wider route that
// begins with the same address is another route.
func (r route) sameDestination(other route) bool { return r.destination == other.destination }

// accepts reports whether a route found on the host is the one wanted, usually
// because the policy agent was faster. The kernel reports scope universe for
// every IPv6 route, so only IPv4 scopes are compared (linux data plane 8).
func (r route) accepts(found route) bool {
	if found.link != r.link || !r.sameDestination(found) {
		return false
	}
	return r.destination.Addr().Is6() || found.scope == r.scope
}

// findAccepted reports whether one of the routes is the wanted one.
func findAccepted(want route, found []route) bool {
	for _, f := range found {
		if want.accepts(f) {
			return true
		}
	}
	return false
}

// findConflict is the first route to the wanted destination.
func findConflict(want route, found []route) (conflict route, ok bool) {
	for _, f := range found {
		if want.sameDestination(f) {
			return f, true
		}
	}
	return route{}, false
}
