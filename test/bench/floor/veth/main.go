//go:build linux

// Command veth is what the kernel takes for a pair of links made or removed
// with netlink alone: veth add|del NETNS
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// name is of the end that stays on the host.
const name = "floor"

func main() {
	runtime.GOMAXPROCS(1)
	if err := do(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func do(what, path string) error {
	if what == "del" {
		return netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}})
	}
	pod, err := netns.GetFromPath(path)
	if err != nil {
		return err
	}
	defer pod.Close()
	return netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name, Flags: 1, TxQLen: -1}, // up
		PeerName:  "eth0", PeerNamespace: netlink.NsFd(int(pod)),
	})
}
