package pair

import (
	"fmt"
	"strings"
	"testing"

	"calico-cni/pkg/cnierr"
)

// TestDeclaredPools: pools of the embedded datastore that the configuration
// declares. A wrong one is refused before anything is made.
func TestDeclaredPools(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		pools []any
		words []string
	}{
		{"10.0.0.0/33", []any{pool("10.0.0.0/33")}, []string{"pools[0].cidr", "10.0.0.0/33"}},
		{"host bits", []any{pool("10.77.0.1/24")}, []string{"pools[0].cidr", "10.77.0.1/24"}},
		{"smaller than a block", []any{map[string]any{"cidr": "10.77.0.0/27", "blockSize": 26}}, []string{"pools[0].blockSize", "10.77.0.0/27"}},
		{"blockSize 64", []any{map[string]any{"cidr": "10.77.0.0/24", "blockSize": 64}}, []string{"pools[0].blockSize", "64"}},
		{"overlapping", []any{pool("10.77.0.0/16"), pool("10.77.8.0/24")}, []string{"pools[1].cidr", "10.77.8.0/24", "10.77.0.0/16"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, p := newHost(t), newPod(t, "container", "")
			before := h.state(t)
			h.run(t, p.verb(t, "ADD", ipv4Only().with("pools", c.pools))).fails(t, cnierr.InvalidConfiguration, c.words...)
			h.unchanged(t, before)
		})
	}
}

// TestOddPools: small, unusual and oddly written pools that work.
func TestOddPools(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, spec, address string
	}{
		{"/32 with blockSize 32", `"cidr":"10.78.0.9/32","blockSize":32`, "10.78.0.9"},
		{"/31", `"cidr":"10.78.0.8/31","blockSize":31`, "10.78.0.8"},
		{"/128", `"cidr":"fd00:78::9/128","blockSize":128`, "fd00:78::9"},
		{"aa::/96", `"cidr":"aa::/96","blockSize":122`, "aa::"},
		{"upper-case CIDR", `"cidr":"FD00:78::0/122","blockSize":122`, "fd00:78::"},
	} {
		t.Run("Linux/40 "+c.name, func(t *testing.T) {
			t.Parallel()
			h, conf := newHost(t), ipv4Only()
			if strings.Contains(c.address, ":") {
				conf = conf.with("ipam.assign_ipv4", "false").with("ipam.assign_ipv6", "true")
			}
			conf = conf.with("pools", []any{})
			h.status(t, conf)
			h.put(t, poolObject("odd", c.spec))
			p := newPod(t, "container", "")
			r := h.add(t, p, conf)
			if len(r.addresses()) != 1 || !strings.HasPrefix(r.addresses()[0], strings.TrimSuffix(c.address, "::")) {
				t.Fatalf("the addresses are %v, want one like %s", r.addresses(), c.address)
			}
			h.works(t, p, r)
			h.del(t, p, conf)
			h.nothingLeft(t)
		})
	}
}

// status runs a STATUS, which makes the embedded datastore; whether it is
// content does not matter.
func (h *host) status(t *testing.T, conf config) outcome {
	t.Helper()
	return h.run(t, hostVerb(t, "STATUS", conf))
}

// TestUselessPools: pools in the datastore that cannot be used are passed over
// with a reason; the others work.
func TestUselessPools(t *testing.T) {
	t.Parallel()
	useless := []struct {
		name, spec string
		warned     bool
	}{
		{"unparsable", `"cidr":"10.0.0.0/33","blockSize":26`, true},
		{"host-bits", `"cidr":"10.78.0.1/24","blockSize":26`, true},
		{"smaller-than-a-block", `"cidr":"10.78.0.0/27","blockSize":26`, true},
		{"block-size-64", `"cidr":"10.78.0.0/24","blockSize":64`, true},
		{"disabled", `"cidr":"10.78.0.0/24","blockSize":26,"disabled":true`, false},
	}
	for _, c := range useless {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, conf := newHost(t), ipv4Only()
			warm := newPod(t, "warm", "")
			h.add(t, warm, conf)
			h.del(t, warm, conf)
			h.put(t, poolObject("a-"+c.name, c.spec))

			p := newPod(t, "container", "")
			o := h.run(t, p.verb(t, "ADD", conf))
			r := o.result(t)
			if !strings.HasPrefix(r.addresses()[0], "10.77.0.") {
				t.Errorf("the address is %v, want one of the good pool", r.addresses())
			}
			if c.warned && !strings.Contains(o.stderr, "a-"+c.name) {
				t.Errorf("nothing on stderr names the pool:\n%s", o.stderr)
			}
			h.del(t, p, conf)

			// Without the good pool there is none.
			h.put(t, objects{h.objects(t).under("/ippools/10-77").keys()[0]: ""})
			conf = conf.with("pools", []any{})
			before := h.state(t)
			if o := h.run(t, p.verb(t, "ADD", conf)).fails(t, cnierr.NoPool); !strings.Contains(o.failure.Msg+o.stderr, "a-"+c.name) {
				t.Errorf("neither the message nor stderr names the pool: %s\n%s", o.failure.Msg, o.stderr)
			}
			h.unchanged(t, before)
		})
	}
	t.Run("no pool", func(t *testing.T) {
		t.Parallel()
		h, conf := newHost(t), ipv4Only().with("pools", []any{})
		h.status(t, conf)
		before := h.state(t)
		h.run(t, newPod(t, "container", "").verb(t, "ADD", conf)).fails(t, cnierr.NoPool)
		h.unchanged(t, before)
	})
}

// TestFullPool fills a pool of two addresses.
func TestFullPool(t *testing.T) {
	t.Parallel()
	t.Run("IPAM/48 dual stack, IPv6 exhausted", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		conf := newConfig().with("pools", []any{pool("10.77.0.0/24"), map[string]any{"cidr": "fd00:77::8/127", "blockSize": 127}})
		first, second := newPod(t, "first", ""), newPod(t, "second", "")
		h.add(t, first, conf)
		h.add(t, second, conf)
		before := h.objects(t).allocated(t)
		third := newPod(t, "third", "")
		h.run(t, third.verb(t, "ADD", conf)).fails(t, cnierr.AddressesExhausted, "failed to request IPv6 addresses", "fd00:77::8/127")
		h.holds(t, third)
		if after := h.objects(t).allocated(t); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("allocated are %v, before %v", after, before)
		}
		h.del(t, first, conf)
		h.works(t, third, h.add(t, third, conf))
	})
	t.Run("all full", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		conf := ipv4Only().with("pools", []any{map[string]any{"cidr": "10.77.0.4/31", "blockSize": 31}})
		h.add(t, newPod(t, "first", ""), conf)
		h.add(t, newPod(t, "second", ""), conf)
		third := newPod(t, "third", "")
		kernel := kernelState(t, "host", h.links)
		h.run(t, third.verb(t, "ADD", conf)).fails(t, cnierr.AddressesExhausted, "10.77.0.4/31",
			"failed to request IPv4 addresses", "Assigned 0 out of 1")
		h.holds(t, third)
		if after := kernelState(t, "host", h.links); difference(kernel, after) != "" {
			t.Errorf("the host has changed:\n%s", difference(kernel, after))
		}
	})
}

// TestRequestedAddress asks for one with CNI_ARGS.
func TestRequestedAddress(t *testing.T) {
	t.Parallel()
	h, conf := newHost(t), ipv4Only()
	first := newPod(t, "first", "IP=10.77.0.255")
	if r := h.add(t, first, conf); r.addresses()[0] != "10.77.0.255" {
		t.Fatalf("the address is %v, want 10.77.0.255", r.addresses())
	}
	h.reaches(t, "10.77.0.255")
	h.put(t, objects{resourceRoot + "ipreservations/kept": `{"kind":"IPReservation","apiVersion":"projectcalico.org/v3",` +
		`"metadata":{"name":"kept"},"spec":{"reservedCIDRs":["10.77.0.0/29"]}}`})

	p := newPod(t, "container", "")
	for _, c := range []struct {
		name, address string
		code          cnierr.Code
		words         []string
	}{
		{"taken", "10.77.0.255", cnierr.AddressTaken, []string{"10.77.0.255", "Address already assigned in block"}},
		{"outside", "192.0.2.1", cnierr.AddressOutsidePools, []string{"192.0.2.1", "The provided IP address is not in a configured pool"}},
		{"no address", "10.77.0", cnierr.InvalidEnvironment, []string{"10.77.0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := h.state(t)
			h.run(t, p.verb(t, "ADD", conf).with("CNI_ARGS=IP="+c.address)).fails(t, c.code, c.words...)
			h.unchanged(t, before)
		})
	}
	t.Run("IPAM/35 reserved: given when asked for, not by itself", func(t *testing.T) {
		other := newPod(t, "other", "")
		if r := h.add(t, other, conf); strings.HasPrefix(r.addresses()[0], "10.77.0.") && len(r.addresses()[0]) == len("10.77.0.1") && r.addresses()[0] < "10.77.0.8" {
			t.Errorf("the address is %v, which is reserved", r.addresses())
		}
		if r := h.add(t, newPod(t, "asking", "IP=10.77.0.0"), conf); r.addresses()[0] != "10.77.0.0" {
			t.Errorf("the address is %v, want 10.77.0.0", r.addresses())
		}
		h.reaches(t, "10.77.0.0")
	})
}
