package linux

import (
	"net/netip"
	"testing"

	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
)

func decideAttachment(container, ifName string) workload.Attachment {
	return workload.Attachment{Network: "net", ContainerID: container, IfName: ifName}
}

// hostLink is a host end whose alias names the attachment.
func hostLink(container, ifName string) link {
	return link{index: 7, name: "cali1", kind: kindVeth, alias: decideAttachment(container, ifName).Alias()}
}

func recordFor(container string, addresses ...string) *dataplane.Record {
	r := &dataplane.Record{ContainerID: container, InterfaceName: "cali1"}
	for _, a := range addresses {
		r.Addresses = append(r.Addresses, netip.MustParseAddr(a))
	}
	return r
}

func TestDecideFirst(t *testing.T) {
	t.Parallel()
	unnamed := link{index: 7, name: "cali1", kind: kindVeth}
	foreign := link{index: 7, name: "cali1", kind: kindVeth, alias: "uplink to rack 7"}
	other := found{exists: true, link: hostLink("other", "eth0")}
	elsewhere := decideAttachment("own", "eth0")
	elsewhere.Network = "renamed"

	tests := []struct {
		name       string
		h          found
		kubernetes bool
		atStart    *dataplane.Record
		reread     *dataplane.Record
		want       addAction
	}{
		{name: "none, Kubernetes", kubernetes: true, want: create},
		{name: "none, other orchestrator", want: create},
		{name: "alias ours, Kubernetes", h: found{exists: true, link: hostLink("own", "eth0")}, kubernetes: true, want: replace},
		{name: "alias ours, other orchestrator", h: found{exists: true, link: hostLink("own", "eth0")}, want: replace},
		{name: "alias ours under another network", h: found{exists: true, link: link{alias: elsewhere.Alias()}}, kubernetes: true, want: replace},
		{name: "same container, other ifname, Kubernetes", h: found{exists: true, link: hostLink("own", "eth1")}, kubernetes: true, want: useSecond},
		{name: "same container, other ifname, other orchestrator", h: found{exists: true, link: hostLink("own", "eth1")}, want: useSecond},
		{name: "no alias, peer here under another name, Kubernetes", h: found{exists: true, link: unnamed, peerHere: true, peerName: "eth1"}, kubernetes: true, want: useSecond},
		{name: "no alias, peer here under another name, other orchestrator", h: found{exists: true, link: unnamed, peerHere: true, peerName: "eth1"}, want: useSecond},
		{name: "other container, named by the record at the start", h: other, kubernetes: true, atStart: recordFor("other", "10.0.0.1"), want: replace},
		{name: "other container, record to be read again", h: other, kubernetes: true, atStart: recordFor("third", "10.0.0.1"), want: readRecord},
		{name: "other container, no record at the start", h: other, kubernetes: true, want: readRecord},
		{name: "other container, reread names it", h: other, kubernetes: true, reread: recordFor("other", "10.0.0.1"), want: overtaken},
		{name: "other container, reread names it without an address", h: other, kubernetes: true, reread: recordFor("other"), want: replace},
		{name: "other container, reread names a third", h: other, kubernetes: true, reread: recordFor("third", "10.0.0.1"), want: replace},
		{name: "other container, no record at all", h: other, kubernetes: true, reread: &dataplane.Record{}, want: replace},
		{name: "other container, other orchestrator", h: other, want: useSecond},
		{name: "no alias, peer elsewhere, Kubernetes", h: found{exists: true, link: unnamed}, kubernetes: true, want: replace},
		{name: "no alias, peer elsewhere, other orchestrator", h: found{exists: true, link: unnamed}, want: replace},
		{name: "no alias, peer here under CNI_IFNAME", h: found{exists: true, link: unnamed, peerHere: true, peerName: "eth0"}, kubernetes: true, want: replace},
		{name: "alias of another form counts as none", h: found{exists: true, link: foreign}, kubernetes: true, want: replace},
		{name: "no alias, no pair", h: found{exists: true, link: link{index: 7, name: "cali1", kind: "bridge"}}, kubernetes: true, want: refuse},
		{name: "no alias, the name is an alternative one", h: found{exists: true, link: link{index: 7, name: "uplink", kind: kindVeth}}, kubernetes: true, want: refuse},
	}
	for _, test := range tests {
		t.Run("Linux/36/tableA/"+test.name, func(t *testing.T) {
			req := dataplane.Request{Attachment: decideAttachment("own", "eth0"), Kubernetes: test.kubernetes, HostInterface: "cali1"}
			if test.atStart != nil {
				req.RecordAtStart = *test.atStart
			}
			if got := decideFirst(test.h, req, test.reread); got != test.want {
				t.Errorf("decided %q, want %q", got, test.want)
			}
		})
	}
}

func TestDecideSecond(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		h    found
		want addAction
	}{
		{"none", found{}, create},
		{"ours", found{exists: true, link: hostLink("own", "eth0")}, replace},
		{"same container, other ifname", found{exists: true, link: hostLink("own", "eth1")}, refuse},
		{"other container", found{exists: true, link: hostLink("other", "eth0")}, refuse},
		{"no alias", found{exists: true, link: link{index: 7}}, refuse},
		{"no alias, peer here under CNI_IFNAME", found{exists: true, link: link{index: 7}, peerHere: true, peerName: "eth0"}, replace},
		{"no alias, peer here under another name", found{exists: true, link: link{index: 7}, peerHere: true, peerName: "eth1"}, refuse},
	}
	for _, test := range tests {
		t.Run("Linux/36/tableA/second name/"+test.name, func(t *testing.T) {
			req := dataplane.Request{Attachment: decideAttachment("own", "eth0")}
			if got := decideSecond(test.h, req); got != test.want {
				t.Errorf("decided %q, want %q", got, test.want)
			}
		})
	}
}

func TestDecidePodEnd(t *testing.T) {
	t.Parallel()
	pod, own, other := link{index: 2, name: "eth0"}, hostLink("own", "eth0"), hostLink("other", "eth0")
	tests := []struct {
		name      string
		pod, peer *link
		want      addAction
	}{
		{"absent", nil, nil, create},
		{"host end ours", &pod, &own, replace},
		{"host end another's", &pod, &other, refuse},
		{"host end without alias", &pod, &link{index: 7, name: "veth7"}, refuse},
		{"host end without alias, of the pod's name", &pod, &link{index: 7, name: "cali1"}, replace},
		{"host end without alias, of the second name", &pod, &link{index: 7, name: "cali2"}, replace},
		{"host end another's, of the second name", &pod, &link{index: 7, name: "cali2", alias: other.alias}, refuse},
		{"host end unknown", &pod, nil, refuse},
	}
	for _, test := range tests {
		t.Run("Linux/36/tableA/pod end/"+test.name, func(t *testing.T) {
			req := dataplane.Request{Attachment: decideAttachment("own", "eth0"), HostInterface: "cali1", SecondInterface: "cali2"}
			if got := decidePodEnd(test.pod, test.peer, req); got != test.want {
				t.Errorf("decided %q, want %q", got, test.want)
			}
		})
	}
}

func TestDecideRemoval(t *testing.T) {
	t.Parallel()
	veth, dummy := &link{index: 2, name: "eth0", kind: kindVeth}, &link{index: 2, name: "eth0", kind: "dummy"}
	own, other, otherIf := hostLink("own", "eth0"), hostLink("other", "eth0"), hostLink("own", "eth1")
	unnamed := link{index: 7, name: "cali1", kind: kindVeth}
	foreign := link{index: 7, name: "cali1", kind: kindVeth, alias: "calico-cni/half"}

	tests := []struct {
		name      string
		pod, host *link
		record    *dataplane.Record
		onPod     string
		want      delAction
	}{
		{name: "absent", want: goOn},
		{name: "alias ours", pod: veth, host: &own, want: remove},
		{name: "alias ours, record another's", pod: veth, host: &own, record: recordFor("other", "10.0.0.1"), onPod: "10.0.0.1", want: remove},
		{name: "no alias, no record", pod: veth, host: &unnamed, onPod: "10.0.0.1", want: remove},
		{name: "no alias, record ours", pod: veth, host: &unnamed, record: recordFor("own", "10.0.0.1"), onPod: "10.0.0.1", want: remove},
		{name: "no alias, record another's, its address here", pod: veth, host: &unnamed, record: recordFor("other", "10.0.0.1"), onPod: "10.0.0.1", want: leaveSuccessor},
		{name: "no alias, record another's, its address not here", pod: veth, host: &unnamed, record: recordFor("other", "10.0.0.2"), onPod: "10.0.0.1", want: remove},
		{name: "no alias, record another's without address", pod: veth, host: &unnamed, record: recordFor("other"), onPod: "10.0.0.1", want: remove},
		{name: "alias of another form, record another's, its address here", pod: veth, host: &foreign, record: recordFor("other", "10.0.0.1"), onPod: "10.0.0.1", want: leaveSuccessor},
		{name: "alias of another form, no record", pod: veth, host: &foreign, onPod: "10.0.0.1", want: remove},
		{name: "alias names another container", pod: veth, host: &other, want: leaveSuccessor},
		{name: "alias names another ifname", pod: veth, host: &otherIf, want: leaveSuccessor},
		{name: "not a pair", pod: dummy, host: &own, want: leaveForeign},
		{name: "peer not in the host namespace", pod: veth, want: leaveForeign},
	}
	for _, test := range tests {
		t.Run("Linux/36/tableB/"+test.name, func(t *testing.T) {
			r := dataplane.Removal{Attachment: decideAttachment("own", "eth0")}
			if test.record != nil {
				r.Record = *test.record
			}
			var onPod []netip.Addr
			if test.onPod != "" {
				onPod = append(onPod, netip.MustParseAddr(test.onPod))
			}
			if got := decideRemoval(r, test.pod, test.host, onPod); got != test.want {
				t.Errorf("decided %q, want %q", got, test.want)
			}
		})
	}
}
