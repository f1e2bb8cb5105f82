package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/pkg/selector"
)

// pool is a well-formed IPPool.
type pool struct {
	*model.IPPool
	cidr     netip.Prefix
	revision datastore.Revision
}

func (p pool) family() model.Family { return model.FamilyOf(p.cidr.Addr()) }

func (p pool) blocks() blockRange { return blockRange{pool: p.cidr, bits: p.BlockSize} }

// blockOf is the block that an address of the pool lies in.
func (p pool) blockOf(addr netip.Addr) netip.Prefix {
	return netip.PrefixFrom(addr, p.BlockSize).Masked()
}

func (p pool) key() model.Key {
	return model.ResourceKey{Kind: model.KindIPPool, Name: p.Metadata.Name}
}

func (p pool) String() string { return fmt.Sprintf("pool %s (%s)", p.Metadata.Name, p.cidr) }

// newPool refuses pools that no block can be cut from; the error names the
// pool (datastore contract 4.1).
func newPool(object *model.IPPool, revision datastore.Revision) (pool, error) {
	cidr, err := object.CIDR()
	if err != nil {
		return pool{}, err
	}
	p := pool{IPPool: object, cidr: cidr, revision: revision}
	longest := cidr.Addr().BitLen()
	shortest := longest - coveringHostBits
	switch {
	case object.BlockSize < shortest || object.BlockSize > longest:
		return pool{}, fmt.Errorf("%s: blockSize %d is outside %d to %d", p, object.BlockSize, shortest, longest)
	case object.BlockSize < cidr.Bits():
		return pool{}, fmt.Errorf("%s is smaller than one of its blocks (blockSize %d)", p, object.BlockSize)
	}
	return p, nil
}

// poolChoice is what decides which pools a request may use, for one family.
type poolChoice struct {
	family    model.Family
	requested []netip.Prefix
	reserve   *model.Reservation
	use       string
	host      string
	node      map[string]string
	namespace map[string]string
}

// choosePools returns the candidate pools in the order in which they are to be
// used and, of the others, why they are none (IPAM contract 4 B).
func choosePools(all []pool, c poolChoice) (chosen []pool, reasons []string, err error) {
	qualified, reasons, err := c.qualified(all)
	if err != nil {
		return nil, reasons, err
	}
	if len(c.requested) > 0 {
		chosen, err = c.named(qualified)
	} else {
		chosen, reasons, err = c.automatic(qualified, reasons)
	}
	if err != nil {
		return nil, reasons, err
	}
	return c.usable(chosen, reasons)
}

func (c poolChoice) qualified(all []pool) (out []pool, reasons []string, err error) {
	longest, err := longestPrefix(c.family, c.reserve)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		switch {
		case p.family() != c.family:
		case !p.Enabled():
			reasons = append(reasons, p.String()+": disabled")
		case p.BlockSize > longest:
			reasons = append(reasons, fmt.Sprintf("%s: blocks of size /%d are too small for the reserved addresses, /%d is the smallest", p, p.BlockSize, longest))
		default:
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return nil, reasons, noPool("cannot find a qualified ippool", reasons)
	}
	return out, reasons, nil
}

// longestPrefix is the smallest block that leaves room beside the reservation.
func longestPrefix(family model.Family, reserve *model.Reservation) (int, error) {
	if reserve == nil {
		return family.Bits(), nil
	}
	if reserve.Start < 0 || reserve.End < 0 || reserve.Size() == 0 {
		return 0, cnierr.New(cnierr.NoPool, "HostReservedAttr has wrong parameters: %d addresses at the front, %d at the end", reserve.Start, reserve.End)
	}
	bits := family.Bits()
	for n := reserve.Size(); n > 0; n >>= 1 {
		bits--
	}
	return bits, nil
}

// named picks the requested pools; selectors and the assignment mode do not
// matter to who asks for a pool.
func (c poolChoice) named(qualified []pool) ([]pool, error) {
	var out []pool
	for _, cidr := range c.requested {
		at := slices.IndexFunc(qualified, func(p pool) bool { return p.cidr == cidr.Masked() })
		if at < 0 {
			return nil, cnierr.New(cnierr.NoPool, "the given pool (%s) does not exist, or is not enabled: name an enabled pool by its name or its exact CIDR", cidr)
		}
		out = append(out, qualified[at])
	}
	return out, nil
}

func (c poolChoice) automatic(qualified []pool, reasons []string) ([]pool, []string, error) {
	var out []pool
	for _, p := range qualified {
		reason, err := c.refusal(p)
		if err != nil {
			return nil, reasons, err
		}
		if reason != "" {
			reasons = append(reasons, p.String()+": "+reason)
			continue
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, reasons, noPool("no configured Calico pools for node "+c.host, reasons)
	}
	return out, reasons, nil
}

func (c poolChoice) refusal(p pool) (string, error) {
	if p.AssignmentMode == model.AssignmentManual {
		return "used only by who asks for it (assignmentMode Manual)", nil
	}
	if ok, err := selects(p, "nodeSelector", p.NodeSelector, c.node); err != nil || !ok {
		return fmt.Sprintf("its nodeSelector %q does not select node %s", p.NodeSelector, c.host), err
	}
	if ok, err := selects(p, "namespaceSelector", p.NamespaceSelector, c.namespace); err != nil || !ok {
		return fmt.Sprintf("its namespaceSelector %q does not select the namespace", p.NamespaceSelector), err
	}
	return "", nil
}

func selects(p pool, which, expression string, labels map[string]string) (bool, error) {
	parsed, err := selector.Parse(expression)
	if err != nil {
		return false, cnierr.Wrap(cnierr.NoPool, err, fmt.Sprintf("%s: parsing its %s %q", p, which, expression))
	}
	return parsed.Matches(labels), nil
}

func (c poolChoice) usable(chosen []pool, reasons []string) ([]pool, []string, error) {
	var out []pool
	for _, p := range chosen {
		if p.Allows(c.use) {
			out = append(out, p)
			continue
		}
		reasons = append(reasons, fmt.Sprintf("%s: not for use %s (allowedUses: [%s])", p, c.use, strings.Join(p.AllowedUses, " ")))
	}
	if len(out) == 0 {
		return nil, reasons, noPool(fmt.Sprintf("cannot find a qualified ippool, no pools match the required use (%s)", c.use), reasons)
	}
	return out, reasons, nil
}

func noPool(what string, reasons []string) error {
	if len(reasons) == 0 {
		return cnierr.New(cnierr.NoPool, "%s: there is no usable IP pool of this family (the log names malformed ones); make one", what)
	}
	return cnierr.New(cnierr.NoPool, "%s: %s; change one of them or make another pool", what, strings.Join(reasons, "; "))
}

// poolOf returns the first pool that holds addr.
func poolOf(pools []pool, addr netip.Addr) (pool, bool) {
	for _, p := range pools {
		if p.cidr.Contains(addr) {
			return p, true
		}
	}
	return pool{}, false
}

func enabled(pools []pool) []pool {
	var out []pool
	for _, p := range pools {
		if p.Enabled() {
			out = append(out, p)
		}
	}
	return out
}
