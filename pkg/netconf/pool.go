package netconf

import (
	"net/netip"
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/selector"
)

// Pool declares an address pool of the embedded datastore. It is made on first
// use; the cluster datastores have their own pools and ignore it.
type Pool struct {
	Name string `json:"name"` // default: the CIDR with dashes for . : /
	CIDR string `json:"cidr"`
	// BlockSize is the prefix length of the pool's blocks; default 26, IPv6 122.
	BlockSize    int    `json:"blockSize"`
	NATOutgoing  bool   `json:"natOutgoing"`
	NodeSelector string `json:"nodeSelector"`
	Disabled     bool   `json:"disabled"`
}

// Block sizes that the other parts of Calico accept.
const (
	minBlockSize4, defaultBlockSize4, maxBlockSize4 = 20, 26, 32
	minBlockSize6, defaultBlockSize6, maxBlockSize6 = 116, 122, 128
)

func (p *Pool) applyDefaults() {
	cidr, err := netip.ParsePrefix(p.CIDR)
	if err != nil {
		return // checkPools reports it
	}
	if p.Name == "" {
		p.Name = strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr.String())
	}
	if p.BlockSize != 0 {
		return
	}
	p.BlockSize = defaultBlockSize4
	if cidr.Addr().Is6() {
		p.BlockSize = defaultBlockSize6
	}
	p.BlockSize = max(p.BlockSize, cidr.Bits())
}

// checkPools returns every mistake in the declared pools.
func checkPools(pools []Pool) []error {
	var problems []error
	for i, pool := range pools {
		if err := pool.check(i); err != nil {
			problems = append(problems, err)
			continue
		}
		for j, earlier := range pools[:i] {
			if err := pool.checkBeside(earlier, i, j); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return problems
}

func (p Pool) check(index int) error {
	cidr, err := netip.ParsePrefix(p.CIDR)
	if err != nil || cidr.Addr().Is4In6() {
		return poolError(index, "cidr", "%q is not a CIDR: write address/length", p.CIDR)
	}
	if cidr != cidr.Masked() {
		return poolError(index, "cidr", "%q has bits set after its prefix: write %q", p.CIDR, cidr.Masked())
	}
	if !isPoolName(p.Name) {
		return poolError(index, "name",
			"%q is not a pool name: use lower-case letters, digits, \".\" and \"-\", with a letter or a digit at both ends", p.Name)
	}
	low, high := minBlockSize4, maxBlockSize4
	if cidr.Addr().Is6() {
		low, high = minBlockSize6, maxBlockSize6
	}
	if p.BlockSize < low || p.BlockSize > high || p.BlockSize < cidr.Bits() {
		return poolError(index, "blockSize",
			"%d does not suit pool %s: use a prefix length from %d to %d", p.BlockSize, cidr, max(low, cidr.Bits()), high)
	}
	nodes, err := selector.Parse(p.NodeSelector)
	if err != nil {
		return poolError(index, "nodeSelector", "%w", err)
	}
	if nodes.UsesGlobal() {
		return poolError(index, "nodeSelector", "%q uses global(), which is not for pools: use all()", p.NodeSelector)
	}
	return nil
}

func (p Pool) checkBeside(earlier Pool, index, earlierIndex int) error {
	if p.Name == earlier.Name {
		return poolError(index, "name", "%q is also the name of pools[%d]: choose another one", p.Name, earlierIndex)
	}
	cidr, err := netip.ParsePrefix(p.CIDR)
	other, otherErr := netip.ParsePrefix(earlier.CIDR)
	if err == nil && otherErr == nil && cidr.Overlaps(other) {
		return poolError(index, "cidr", "%s overlaps %s of pools[%d]", p.CIDR, earlier.CIDR, earlierIndex)
	}
	return nil
}

func poolError(index int, key, format string, args ...any) error {
	args = append([]any{index, key}, args...)
	return cnierr.New(cnierr.InvalidConfiguration, "network configuration key pools[%d].%s: "+format, args...)
}

func isPoolName(name string) bool {
	return name == strings.ToLower(name) && !strings.Contains(name, "_") && name != "" && isNodeName(name)
}
