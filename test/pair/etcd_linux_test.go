package pair

import (
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/test/etcdtest"
)

// cluster is what a Calico cluster has before its first pod.
func cluster(pools ...objects) objects {
	all := objects{
		resourceRoot + "clusterinformations/default": `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3",` +
			`"metadata":{"name":"default"},"spec":{"clusterGUID":"1234","datastoreReady":true}}`,
		resourceRoot + "nodes/node-1": `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"node-1"},"spec":{}}`,
	}
	for _, pool := range pools {
		for key, value := range pool {
			all[key] = value
		}
	}
	return all
}

var (
	pool4 = poolObject("pool4", `"cidr":"10.77.0.0/24","blockSize":26,"nodeSelector":"all()","allowedUses":["Workload"]`)
	pool6 = poolObject("pool6", `"cidr":"fd00:77::/112","blockSize":122,"nodeSelector":"all()"`)
)

// newEtcdHost is a host whose datastore is an etcd server of its own.
func newEtcdHost(t *testing.T, options etcdtest.Options, start objects) (*host, config) {
	t.Helper()
	h := newHost(t)
	// With a cluster's datastore that is the node agent's business.
	h.setSysctl(t, "/proc/sys/net/ipv4/ip_forward", "1")
	h.setSysctl(t, "/proc/sys/net/ipv6/conf/all/forwarding", "1")
	h.etcd = etcdtest.Start(t, options)
	for key, value := range start {
		h.etcd.Put(t, key, value)
	}
	return h, newConfig().without("pools").with("etcd_endpoints", h.proxied(t, h.etcd.Endpoint))
}

// TestEtcd puts pods on the network and takes them off, with the numbers of
// requests that the design promises.
func TestEtcd(t *testing.T) {
	t.Parallel()
	for _, who := range identities {
		t.Run(who.name, func(t *testing.T) {
			t.Parallel()
			small := poolObject("pool4", `"cidr":"10.77.0.0/24","blockSize":31,"nodeSelector":"all()"`)
			h, conf := newEtcdHost(t, etcdtest.Options{}, cluster(small))
			conf = conf.with("ipam.assign_ipv6", "false")
			pods := make([]*pod, 3)
			for i := range pods {
				pods[i] = newPod(t, strings.Repeat(string(rune('a'+i)), 12), strings.Replace(who.args, "web-0", "web-"+string(rune('0'+i)), 1))
			}
			first := h.add(t, pods[0], conf)
			h.budget(t, "ADD, steady state", 4, pods[1].verb(t, "ADD", conf))
			added := h.budget(t, "ADD, new block", 5, pods[2].verb(t, "ADD", conf))
			h.budget(t, "STATUS", 1, hostVerb(t, "STATUS", conf))
			h.works(t, pods[0], first)
			h.run(t, pods[2].check(t, conf, added)).succeeds(t)
			h.budget(t, "DEL", 4, pods[1].verb(t, "DEL", conf))
			h.run(t, hostVerb(t, "GC", conf.gcKey(validKey, attachments(pods[0].container, "eth0")))).succeeds(t)
			h.holds(t, pods[2])
			h.works(t, pods[0], first)
			h.del(t, pods[0], conf)
			h.nothingLeft(t)
			if tables := h.tables(t); tables != "" {
				t.Errorf("with etcd there is an agent, and we made %s", tables)
			}
		})
	}
}

// budget runs a call that may make no more than this many requests.
func (h *host) budget(t *testing.T, what string, limit int, c call) outcome {
	t.Helper()
	var o outcome
	calls := h.etcd.CallsDuring(t, func() { o = h.run(t, c).succeeds(t) })
	sum := 0
	for _, count := range calls {
		sum += count
	}
	if sum > limit {
		t.Errorf("%s: %d requests, want at most %d: %v", what, sum, limit, calls)
	}
	return o
}

// TestEtcdTLS uses client certificates, and then wrong ones.
func TestEtcdTLS(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	server := etcdtest.Start(t, etcdtest.Options{TLS: true})
	conf := newConfig().without("pools").with("etcd_endpoints", h.proxied(t, server.Endpoint)).with("timeout_seconds", 4).
		with("etcd_ca_cert_file", server.CAFile).with("etcd_cert_file", server.CertFile).with("etcd_key_file", server.KeyFile)
	p := newPod(t, "container", "")
	before := kernelState(t, "host", h.links)
	t.Run("good certificates reach an empty datastore", func(t *testing.T) {
		h.run(t, p.verb(t, "ADD", conf)).fails(t, cnierr.TryAgainLater, "ready")
	})
	other := etcdtest.Start(t, etcdtest.Options{TLS: true})
	for _, c := range []struct {
		name  string
		conf  config
		words []string
	}{
		{"the server is signed by another authority", conf.with("etcd_ca_cert_file", other.CAFile), []string{"certificate"}},
		{"no client certificate", conf.with("etcd_cert_file", "").with("etcd_key_file", ""), []string{"127.0.0.1"}},
		{"plain text to a TLS server", conf.with("etcd_endpoints", strings.Replace(conf["etcd_endpoints"].(string), "https", "http", 1)), []string{"127.0.0.1"}},
		{"certificate file missing", conf.with("etcd_cert_file", "/nowhere/client.crt"), []string{"/nowhere/client.crt"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, verb := range []string{"ADD", "DEL"} {
				o := h.run(t, p.verb(t, verb, c.conf))
				o.fails(t, o.failure.Code, c.words...)
				if o.failure.Code == cnierr.Unclassified {
					t.Errorf("%s has no code of its own: %s", verb, o.failure.Msg)
				}
			}
		})
	}
	if after := kernelState(t, "host", h.links); difference(before, after) != "" {
		t.Errorf("the host has changed:\n%s", difference(before, after))
	}
}

// TestEtcdNodeAndReadiness: what a cluster's datastore may lack.
func TestEtcdNodeAndReadiness(t *testing.T) {
	t.Parallel()
	h, conf := newEtcdHost(t, etcdtest.Options{}, cluster(pool4, pool6))
	p := newPod(t, "container", "")
	information := resourceRoot + "clusterinformations/default"
	good := h.objects(t)[information]
	for name, value := range map[string]string{
		"false":  strings.Replace(good, "true", "false", 1),
		"absent": strings.Replace(good, `,"datastoreReady":true`, "", 1),
	} {
		t.Run("Network/12 datastoreReady "+name, func(t *testing.T) {
			h.etcd.Put(t, information, value)
			before := h.state(t)
			h.run(t, p.verb(t, "ADD", conf)).fails(t, cnierr.TryAgainLater, "ready")
			h.run(t, p.verb(t, "DEL", conf)).fails(t, cnierr.TryAgainLater, "ready")
			h.run(t, hostVerb(t, "STATUS", conf)).fails(t, cnierr.NotAvailable, "ready")
			h.unchanged(t, before)
			h.etcd.Put(t, information, good)
		})
	}
	t.Run("node unknown", func(t *testing.T) {
		h.run(t, p.verb(t, "ADD", conf.with("nodename", "node-9"))).fails(t, cnierr.NodeUnknown, "node-9", "resource does not exist")
		h.nothingLeft(t)
		h.run(t, hostVerb(t, "STATUS", conf.with("nodename", "node-9"))).fails(t, cnierr.NotAvailable, "node-9")
		h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
	})
}

// TestEtcdAway: down, never answering, half of a cluster gone.
func TestEtcdAway(t *testing.T) {
	t.Parallel()
	t.Run("Network/46 DEL with the datastore unreachable", func(t *testing.T) {
		t.Parallel()
		h, conf := newEtcdHost(t, etcdtest.Options{}, cluster(pool4, pool6))
		p := newPod(t, "container", "")
		r := h.add(t, p, conf)
		silent := h.newProxy(t, "")
		for name, address := range map[string]string{"down": "127.0.0.1:1", "silent": silent.address()} {
			before, begin := h.state(t), time.Now()
			away := conf.with("etcd_endpoints", "http://"+address).with("timeout_seconds", 3)
			h.run(t, p.verb(t, "DEL", away)).fails(t, cnierr.TryAgainLater, address)
			h.run(t, newPod(t, "other", "").verb(t, "ADD", away)).fails(t, cnierr.TryAgainLater, address)
			if waited := time.Since(begin); waited > 15*time.Second {
				t.Errorf("%s: DEL and ADD took %v, with 3 s each", name, waited)
			}
			h.unchanged(t, before)
		}
		h.works(t, p, r)
		h.del(t, p, conf)
		h.nothingLeft(t)
	})
	t.Run("Network/63 STATUS with the datastore unreachable", func(t *testing.T) {
		t.Parallel()
		h := newHost(t)
		silent := h.newProxy(t, "")
		for _, address := range []string{"127.0.0.1:1", silent.address()} {
			begin := time.Now()
			h.run(t, hostVerb(t, "STATUS", newConfig().with("etcd_endpoints", "http://"+address))).fails(t, cnierr.NotAvailable, address)
			if waited := time.Since(begin); waited > 5*time.Second {
				t.Errorf("STATUS took %v, want 2 s", waited)
			}
		}
	})
	t.Run("one of three endpoints dead", func(t *testing.T) {
		t.Parallel()
		h, conf := newEtcdHost(t, etcdtest.Options{}, cluster(pool4, pool6))
		endpoints := "http://127.0.0.1:1," + conf["etcd_endpoints"].(string) + "," + h.proxied(t, h.etcd.Endpoint)
		conf, p := conf.with("etcd_endpoints", endpoints), newPod(t, "container", "")
		h.works(t, p, h.add(t, p, conf))
		h.del(t, p, conf)
		h.nothingLeft(t)
	})
	t.Run("slow", func(t *testing.T) {
		t.Parallel()
		h, conf := newEtcdHost(t, etcdtest.Options{}, cluster(pool4, pool6))
		_, target, _ := strings.Cut(h.etcd.Endpoint, "://")
		conf = conf.with("etcd_endpoints", "http://"+h.newSlowProxy(t, target, 200*time.Millisecond).address())
		p := newPod(t, "container", "")
		added := h.run(t, p.verb(t, "ADD", conf))
		h.works(t, p, added.result(t))
		h.run(t, p.check(t, conf, added)).succeeds(t)
		h.run(t, hostVerb(t, "STATUS", conf)).succeeds(t)
		h.del(t, p, conf)
		h.nothingLeft(t)
		// Too slow for the deadline: refused, and nothing is left either.
		conf = conf.with("etcd_endpoints", "http://"+h.newSlowProxy(t, target, 1500*time.Millisecond).address())
		h.run(t, p.verb(t, "ADD", conf.with("timeout_seconds", 1))).fails(t, cnierr.TryAgainLater, "127.0.0.1")
		h.nothingLeft(t)
	})
	t.Run("paused in the middle", func(t *testing.T) {
		t.Parallel()
		h, conf := newEtcdHost(t, etcdtest.Options{}, cluster(pool4, pool6))
		p := newPod(t, "container", "")
		h.etcd.Pause(t)
		h.run(t, p.verb(t, "ADD", conf.with("timeout_seconds", 2))).fails(t, cnierr.TryAgainLater, "127.0.0.1")
		h.etcd.Resume(t)
		h.works(t, p, h.add(t, p, conf))
		h.del(t, p, conf)
		h.nothingLeft(t)
	})
}
