package linux

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/dataplane"
	"calico-cni/pkg/workload"
)

func TestDelete(t *testing.T) {
	row(t, "32 netns path missing", func(t *testing.T) {
		n := newNode(t)
		missing := filepath.Join(t.TempDir(), "gone")
		req := request(newPlace(t), "c1", func(r *dataplane.Request) { r.Namespace = missing })
		_, err := n.add(req)
		wantCode(t, err, cnierr.InvalidEnvironment, "CNI_NETNS", missing)
		n.mustDel(dataplane.Removal{Attachment: req.Attachment, Namespace: missing})
	})

	row(t, "33 DEL removes the pair and the host routes", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1", dualStack))
		n.mustDel(removal(pod, "c1"))
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
		wantList(t, "routes left", append(n.routes(unix.AF_INET), n.routes(unix.AF_INET6)...))
	})

	row(t, "34 DEL twice", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		n.mustDel(removal(pod, "c1"))
		n.mustDel(removal(pod, "c1"))
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "34 a parallel DEL wins at each step", func(t *testing.T) {
		for _, op := range operationsOf(t, func(n *node, pod *place) { n.mustDel(removal(pod, "c1")) }) {
			n, pod := newNode(t), newPlace(t)
			n.mustAdd(request(pod, "c1"))
			n.fault(countedKey(op, func() error {
				n.second().mustDel(removal(pod, "c1"))
				return nil
			}))
			n.mustDel(removal(pod, "c1"))
			wantList(t, "interfaces left after "+op, append(n.names(), pod.names()...))
		}
	})

	row(t, "34 two DELs in parallel", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		results := make(chan error)
		for range 2 {
			go func() { results <- n.second().del(removal(pod, "c1")) }()
		}
		for range 2 {
			if err := <-results; err != nil {
				t.Errorf("DEL: %v", err)
			}
		}
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "35 DEL with empty CNI_NETNS", func(t *testing.T) {
		n, pod, other := newNode(t), newPlace(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		n.mustAdd(request(other, "c2", func(r *dataplane.Request) { r.HostInterface = "calib" },
			withAddresses(podV6)))
		n.addVeth("caliunnamed", other, "eth1")
		n.addOther("foreign")
		n.mustDel(removal(nil, "c1"))
		wantEqual(t, "our link is there", n.has(hostName), false)
		for _, name := range []string{"calib", "caliunnamed", "foreign", "foreign-peer"} {
			wantEqual(t, name+" is there", n.has(name), true)
		}
	})

	row(t, "35 the pod end was renamed", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		must(t, pod.handle.LinkSetDown(pod.link("eth0")))
		must(t, pod.handle.LinkSetName(pod.link("eth0"), "lan0"))
		n.mustDel(removal(pod, "c1"))
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "35 the host end was renamed", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		must(t, n.handle.LinkSetDown(n.link(hostName)))
		must(t, n.handle.LinkSetName(n.link(hostName), "renamed"))
		n.mustDel(removal(nil, "c1"))
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	})

	row(t, "38 the path is no namespace", func(t *testing.T) {
		n := newNode(t)
		directory := t.TempDir()
		plain, pipe := filepath.Join(directory, "plain"), filepath.Join(directory, "pipe")
		must(t, os.WriteFile(plain, nil, 0o600))
		must(t, unix.Mkfifo(pipe, 0o600))
		for _, path := range []string{plain, pipe, directory, "/proc/self/status", "/proc/self/ns/mnt", filepath.Join(plain, "below")} {
			n.addVeth(hostName, newPlace(t), "eth0")
			must(t, n.handle.LinkSetAlias(n.link(hostName), attachment("c1").Alias()))
			n.mustDel(dataplane.Removal{Attachment: attachment("c1"), Namespace: path})
			wantEqual(t, "the link is there after DEL with "+path, n.has(hostName), false)
			n.do(func() { wantCode(t, n.d.Validate(path), cnierr.InvalidEnvironment, path, "CNI_NETNS") })
		}
	})

	row(t, "38 a namespace that may not be entered is an error", func(t *testing.T) {
		n := newNode(t)
		loop := filepath.Join(t.TempDir(), "loop")
		must(t, os.Symlink(loop, loop))
		wantCode(t, n.del(dataplane.Removal{Attachment: attachment("c1"), Namespace: loop}), cnierr.NetlinkRefused, loop)
	})
}

func TestDeleteHangs(t *testing.T) {
	hung := func(t *testing.T, op string) (*node, *place) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		release := make(chan struct{})
		t.Cleanup(func() { close(release) })
		n.fault(func(got string) error {
			if got == op {
				<-release
				return errIgnored
			}
			return nil
		})
		return n, pod
	}

	row(t, "37 hung link deletion", func(t *testing.T) {
		n, pod := hung(t, "host LinkDel")
		n.d.kernel.deletionLimit = 100 * time.Millisecond
		wantCode(t, n.del(removal(pod, "c1")), cnierr.NetlinkRefused, hostName, "100ms")
	})

	row(t, "37 the limit is 20 s", func(t *testing.T) {
		wantEqual(t, "the limit", New(Options{}).kernel.deletionLimit, 20*time.Second)
	})

	row(t, "37 the verb's deadline comes first", func(t *testing.T) {
		n, pod := hung(t, "host LinkDel")
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		var err error
		n.do(func() { err = n.d.Delete(ctx, removal(pod, "c1")) })
		wantCode(t, err, cnierr.NetlinkRefused, hostName, "deadline")
	})

	row(t, "37 a failing deletion is an error", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		n.fault(func(op string) error {
			if op == "host LinkDel" {
				return unix.EBUSY
			}
			return nil
		})
		wantCode(t, n.del(removal(pod, "c1")), cnierr.NetlinkRefused, hostName, unix.EBUSY.Error())
	})
}

func TestOwnNamespace(t *testing.T) {
	row(t, "45 ADD, DEL and Validate with our own namespace", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		n.addOther("eth0")
		_, err := n.add(request(n.place, "c2", func(r *dataplane.Request) { r.HostInterface = "calib" }))
		wantCode(t, err, cnierr.OwnNamespace, n.Path())
		n.do(func() { wantCode(t, n.d.Validate(n.Path()), cnierr.OwnNamespace, n.Path()) })

		wantCode(t, n.del(removal(n.place, "c1")), cnierr.OwnNamespace, n.Path())
		wantEqual(t, "the link of the attachment is there", n.has(hostName), false)
		wantEqual(t, "the host's own eth0 is there", n.has("eth0"), true)
	})

	row(t, "45 CNI_NETNS_OVERRIDE switches the check off", func(t *testing.T) {
		n := newNode(t)
		n.d = New(Options{AllowOwnNamespace: true})
		n.do(func() { must(t, n.d.Validate(n.Path())) })
		n.mustAdd(request(n.place, "c1"))
		wantEqual(t, "both ends are there", n.has(hostName) && n.has("eth0"), true)
		n.mustDel(removal(n.place, "c1"))
		wantList(t, "interfaces left", n.names())
	})

	t.Run("a good namespace is valid", func(t *testing.T) {
		t.Parallel()
		n, pod := newNode(t), newPlace(t)
		n.do(func() { must(t, n.d.Validate(pod.Path())) })
		n.do(func() { wantCode(t, n.d.Validate(""), cnierr.InvalidEnvironment, "CNI_NETNS") })
	})
}

func TestHasInterface(t *testing.T) {
	t.Parallel()
	n, pod := newNode(t), newPlace(t)
	n.mustAdd(request(pod, "c1"))
	plain := filepath.Join(t.TempDir(), "plain")
	must(t, os.WriteFile(plain, nil, 0o600))
	for _, test := range []struct {
		path, ifName string
		want         bool
	}{
		{pod.Path(), "eth0", true},
		{pod.Path(), "eth1", false},
		{pod.Path() + "-gone", "eth0", false},
		{plain, "eth0", false},
		{"", "eth0", false},
	} {
		got, err := n.d.HasInterface(test.path, test.ifName)
		must(t, err)
		wantEqual(t, test.path+" has "+test.ifName, got, test.want)
	}
}

func TestConfirmAndUndo(t *testing.T) {
	t.Parallel()
	n, pod := newNode(t), newPlace(t)
	made := n.mustAdd(request(pod, "c1"))
	must(t, n.confirm(made))
	for range 2 {
		n.do(func() { must(t, n.d.Undo(context.Background(), made)) })
		wantList(t, "interfaces left", append(n.names(), pod.names()...))
	}
	wantCode(t, n.confirm(made), cnierr.Overtaken, hostName)
}

func TestGC(t *testing.T) {
	row(t, "49 links", func(t *testing.T) {
		n := newNode(t)
		alias := map[string]string{
			"calivalid":   "calico-cni/net/c1/eth0",
			"calisecond":  "calico-cni/net/c1/eth1",
			"calistale":   "calico-cni/net/c2/eth0",
			"caliother":   "calico-cni/other/c2/eth0",
			"calilonger":  "calico-cni/net.a/c2/eth0",
			"caliunnamed": "",
			"califoreign": "to rack 7",
		}
		pod := newPlace(t)
		for name, text := range alias {
			n.addVeth(name, pod, strings.Replace(name, "cali", "e", 1))
			if text != "" {
				must(t, n.handle.LinkSetAlias(n.link(name), text))
			}
		}
		var owned []dataplane.Found
		var err error
		n.do(func() { owned, err = n.d.Owned(context.Background()) })
		must(t, err)
		wantEqual(t, "the number of links that name an owner", len(owned), 5)

		valid := workload.Attachment{Network: "net", ContainerID: "c1", IfName: "eth0"}
		for _, f := range owned {
			if !f.Owner.InNetwork("net") || f.Owner.Is(valid) {
				continue
			}
			for range 2 {
				n.do(func() { must(t, n.d.Remove(context.Background(), f)) })
			}
		}
		for name := range alias {
			wantEqual(t, name+" is there", n.has(name), name != "calisecond" && name != "calistale")
		}
	})

	row(t, "49 a link that changed hands stays", func(t *testing.T) {
		n, pod := newNode(t), newPlace(t)
		n.mustAdd(request(pod, "c1"))
		var owned []dataplane.Found
		var err error
		n.do(func() { owned, err = n.d.Owned(context.Background()) })
		must(t, err)
		wantEqual(t, "the number of links", len(owned), 1)
		must(t, n.handle.LinkSetAlias(n.link(hostName), attachment("c2").Alias()))
		n.do(func() { must(t, n.d.Remove(context.Background(), owned[0])) })
		wantEqual(t, "the link is there", n.has(hostName), true)
	})
}
