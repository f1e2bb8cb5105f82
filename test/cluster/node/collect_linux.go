package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// collectVariable tells this executable to play the part of a runtime that
// collects garbage.
const collectVariable = "CALICO_CNI_TEST_COLLECT"

const (
	pluginFolder   = "/opt/cni/bin"
	configFolder   = "/etc/cni/net.d"
	collectTimeout = 3 * time.Minute
)

// CollectGarbage runs GC on the node as a runtime with libcni 1.3 does, with
// these sandboxes as the ones that live. containerd 1.6 has no GC.
func (n *Node) CollectGarbage(live []*Sandbox) error {
	valid := []types.GCAttachment{}
	for _, sandbox := range live {
		valid = append(valid, types.GCAttachment{ContainerID: sandbox.ID, IfName: uplink})
	}
	text, err := json.Marshal(valid)
	if err != nil {
		return err
	}
	var output bytes.Buffer
	command := n.inside(programs + "/exe")
	command.Env = append(command.Env, collectVariable+"=yes")
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(text), &output, &output
	if err := command.Run(); err != nil {
		return fmt.Errorf("collecting garbage on %s: %w: %s", n.Name, err, &output)
	}
	return nil
}

// collect is the runtime of CollectGarbage, inside the node.
func collect() int {
	ctx, cancel := context.WithTimeout(context.Background(), collectTimeout)
	defer cancel()
	var valid []types.GCAttachment
	err := json.NewDecoder(os.Stdin).Decode(&valid)
	var files []string
	if err == nil {
		files, err = libcni.ConfFiles(configFolder, []string{".conflist"})
	}
	for _, file := range files {
		var list *libcni.NetworkConfigList
		if list, err = libcni.ConfListFromFile(file); err != nil {
			break
		}
		runtime := libcni.NewCNIConfig([]string{pluginFolder}, nil)
		if err = runtime.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
			break
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
