//go:build windows

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Microsoft/hcsshim/hcn"

	"calico-cni/windows/hns"
	"calico-cni/windows/node"
)

// The trial's own network: its name, range and VNI are nobody else's.
const (
	networkName = "CalicoTrial"
	poolRange   = "10.213.0.0/24"
	trialVNI    = 4999
)

// callTime bounds one call of the plugin.
const callTime = 2 * time.Minute

// trial is one run on this node.
type trial struct {
	service hns.Service
	host    hns.Host
	version hns.Version
	build   int
	plugins string
	conf    map[string]any
	// folder holds the trial's datastore and log.
	folder     string
	namespaces map[string]string
	before     state
	// added is the result of the first ADD.
	added answer
}

// begin looks at the node and prepares a folder.
func begin(ctx context.Context, plugins, mode string) (*trial, error) {
	t := &trial{service: node.Service{}, host: node.Host{}, namespaces: map[string]string{}}
	var err error
	if t.plugins, err = filepath.Abs(plugins); err != nil {
		return nil, err
	}
	if t.version, err = t.service.Version(ctx); err != nil {
		return nil, err
	}
	if t.build, err = t.host.Build(); err != nil {
		return nil, err
	}
	if t.before, err = t.look(ctx); err != nil {
		return nil, err
	}
	if len(t.before.ours) > 0 {
		return nil, fmt.Errorf("networks of an earlier trial are there: %v; remove them", t.before.ours)
	}
	if t.folder, err = os.MkdirTemp("", "onnode"); err != nil {
		return nil, err
	}
	t.conf = map[string]any{
		"cniVersion": "1.1.0", "name": networkName, "type": "calico", "mode": mode, "vxlan_vni": trialVNI, "nodename": "onnode",
		"windows_use_single_network": true, "datastore_type": "embedded", "embedded_file": filepath.Join(t.folder, "datastore.db"),
		"log_file_path": filepath.Join(t.folder, "cni.log"), "ipam": map[string]any{"type": "calico-ipam"},
		"pools": []any{map[string]any{"name": "trial", "cidr": poolRange, "blockSize": 29, "natOutgoing": true}},
		"dns":   map[string]any{"nameservers": []string{"10.213.0.10"}},
	}
	return t, nil
}

// answer is what the plugin printed: a result or an error.
type answer struct {
	Code uint
	Msg  string
	IPs  []struct{ Address string }
	raw  json.RawMessage
}

// call executes calico.exe as a runtime does. A refusal is an answer.
func (t *trial) call(ctx context.Context, verb, container string, members map[string]any) (answer, error) {
	namespace, err := t.namespace(container)
	if err != nil {
		return answer{}, err
	}
	conf := maps.Clone(t.conf)
	maps.Copy(conf, members)
	stdin, err := json.Marshal(conf)
	if err != nil {
		return answer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(t.plugins, "calico.exe"))
	command.Env = append(os.Environ(), "CNI_COMMAND="+verb, "CNI_CONTAINERID="+container, "CNI_NETNS="+namespace, "CNI_IFNAME=eth0", "CNI_PATH="+t.plugins)
	var stdout, stderr bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	err = command.Run()
	var out answer
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
			return out, fmt.Errorf("%s printed %q: %w", verb, stdout.String(), err)
		}
	}
	out.raw = stdout.Bytes()
	var exited *exec.ExitError
	if err != nil && (!errors.As(err, &exited) || out.Code == 0) {
		return out, fmt.Errorf("%s: %w\n%s", verb, err, stderr.String())
	}
	return out, nil
}

// succeed calls the plugin and wants no error.
func (t *trial) succeed(ctx context.Context, verb, container string, members map[string]any) (answer, error) {
	got, err := t.call(ctx, verb, container, members)
	if err == nil && got.Code != 0 {
		err = fmt.Errorf("%s of %s: code %d: %s", verb, container, got.Code, got.Msg)
	}
	return got, err
}

// refuse calls ADD and wants a code, and no endpoint.
func (t *trial) refuse(ctx context.Context, container string, members map[string]any, code uint) error {
	got, err := t.call(ctx, "ADD", container, members)
	if err != nil {
		return err
	}
	if got.Code != code {
		return fmt.Errorf("ADD of %s: code %d (%s), want %d", container, got.Code, got.Msg, code)
	}
	found, err := t.service.EndpointsByName(ctx, endpointName(container))
	if err == nil && len(found) > 0 {
		err = fmt.Errorf("ADD of %s failed and left an endpoint", container)
	}
	return err
}

func endpointName(container string) string { return container + "_" + networkName }

// namespace is the sandbox of a container, made on first use.
func (t *trial) namespace(container string) (string, error) {
	if id := t.namespaces[container]; id != "" {
		return id, nil
	}
	made, err := hcn.NewNamespace(hcn.NamespaceTypeHost).Create()
	if err != nil {
		return "", fmt.Errorf("making a namespace: %w", err)
	}
	t.namespaces[container] = made.Id
	return made.Id, nil
}

// endpoint is the container's only one.
func (t *trial) endpoint(ctx context.Context, container string) (hns.Endpoint, error) {
	found, err := t.service.EndpointsByName(ctx, endpointName(container))
	if err != nil {
		return hns.Endpoint{}, err
	}
	if len(found) != 1 {
		return hns.Endpoint{}, fmt.Errorf("%d endpoints have the name %s", len(found), endpointName(container))
	}
	return found[0], nil
}

// remove removes what the cases left: endpoints by DEL, then networks,
// namespaces and files.
func (t *trial) remove(ctx context.Context) error {
	var failures []error
	for _, container := range slices.Sorted(maps.Keys(t.namespaces)) {
		_, err := t.succeed(ctx, "DEL", container, nil)
		failures = append(failures, err)
	}
	failures = append(failures, t.removeNetworks(ctx))
	for _, id := range t.namespaces {
		namespace, err := hcn.GetNamespaceByID(id)
		if err == nil {
			err = namespace.Delete()
		}
		failures = append(failures, err)
	}
	files, err := os.ReadDir(t.folder)
	failures = append(failures, err)
	for _, file := range files {
		failures = append(failures, os.Remove(filepath.Join(t.folder, file.Name())))
	}
	return errors.Join(append(failures, os.Remove(t.folder))...)
}

func (t *trial) removeNetworks(ctx context.Context) error {
	unlock, err := t.host.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	networks, err := t.service.Networks(ctx)
	for _, network := range networks {
		if isTrials(network.Name) {
			err = errors.Join(err, t.service.DeleteNetwork(ctx, network.ID))
		}
	}
	return err
}

func isTrials(network string) bool {
	return network == networkName || strings.HasPrefix(network, networkName+"-")
}
