package node

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// callTimeout bounds one call. ADD alone may take 90 s by its own deadline.
const callTimeout = 2 * time.Minute

// Runtime drives a node's containerd as a kubelet does.
type Runtime struct {
	connection *grpc.ClientConn
	service    cri.RuntimeServiceClient
	cgroup     string

	mu sync.Mutex
	// known are the sandboxes that were looked up. What is known of one does
	// not change while it lives.
	known map[string]*Sandbox
}

func dial(n *Node) (*Runtime, error) {
	connection, err := grpc.NewClient("unix://"+n.File(containerdSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connecting with containerd of %s: %w", n.Name, err)
	}
	service := cri.NewRuntimeServiceClient(connection)
	return &Runtime{connection: connection, service: service, cgroup: "/" + n.cgroup, known: map[string]*Sandbox{}}, nil
}

func (r *Runtime) version(ctx context.Context) (*cri.VersionResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return r.service.Version(ctx, &cri.VersionRequest{})
}

// Status returns the conditions of the runtime and its network by their types,
// and what it says beyond.
func (r *Runtime) Status(ctx context.Context) (conditions map[string]string, more map[string]string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := r.service.Status(ctx, &cri.StatusRequest{Verbose: true})
	if err != nil {
		return nil, nil, err
	}
	conditions = map[string]string{}
	for _, condition := range answer.Status.Conditions {
		if !condition.Status {
			conditions[condition.Type] = condition.Reason + ": " + condition.Message
		} else {
			conditions[condition.Type] = ""
		}
	}
	return conditions, answer.Info, nil
}

// Sandbox is a pod's sandbox as its runtime sees it.
type Sandbox struct {
	ID, Name  string
	Attempt   uint32
	Addresses []string
	// PID is of its process, seen from the node.
	PID int

	config *cri.PodSandboxConfig
}

// RunSandbox makes a sandbox of a pod, on the network.
func (r *Runtime) RunSandbox(ctx context.Context, namespace, name, uid string, attempt uint32) (*Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	config := &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: uid, Attempt: attempt}, Hostname: name,
		LogDirectory: "/var/log/pods/" + namespace + "_" + name,
		Linux: &cri.LinuxPodSandboxConfig{CgroupParent: r.cgroup, SecurityContext: &cri.LinuxSandboxSecurityContext{
			NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER},
		}},
	}
	made, err := r.service.RunPodSandbox(ctx, &cri.RunPodSandboxRequest{Config: config})
	if err != nil {
		return nil, err
	}
	sandbox, err := r.inspect(ctx, made.PodSandboxId)
	if err != nil {
		return nil, err
	}
	sandbox.config = config
	return sandbox, nil
}

// inspect looks a running sandbox up.
func (r *Runtime) inspect(ctx context.Context, id string) (*Sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if sandbox := r.known[id]; sandbox != nil {
		return sandbox, nil
	}
	answer, err := r.service.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("looking up sandbox %s: %w", id, err)
	}
	var more struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(answer.Info["info"]), &more); err != nil {
		return nil, fmt.Errorf("looking up sandbox %s: %w", id, err)
	}
	metadata := answer.Status.Metadata
	sandbox := &Sandbox{ID: id, Name: metadata.Name, Attempt: metadata.Attempt, PID: more.PID}
	if network := answer.Status.Network; network.GetIp() != "" {
		sandbox.Addresses = []string{network.Ip}
		for _, further := range network.AdditionalIps {
			sandbox.Addresses = append(sandbox.Addresses, further.Ip)
		}
	}
	if answer.Status.State == cri.PodSandboxState_SANDBOX_READY {
		r.known[id] = sandbox
	}
	return sandbox, nil
}

// Serve starts the workload's server in a sandbox that RunSandbox made and
// returns the id of the container.
func (r *Runtime) Serve(ctx context.Context, sandbox *Sandbox, port string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	made, err := r.service.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: sandbox.ID, SandboxConfig: sandbox.config,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "serve"}, Image: &cri.ImageSpec{Image: Image},
			Command: []string{Workload, "serve", port}, LogPath: "serve.log", Linux: &cri.LinuxContainerConfig{},
		},
	})
	if err != nil {
		return "", fmt.Errorf("making the container of %s: %w", sandbox.Name, err)
	}
	if _, err := r.service.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		return "", fmt.Errorf("starting the container of %s: %w", sandbox.Name, err)
	}
	return made.ContainerId, nil
}

// StopSandbox takes a sandbox off the network and ends its processes.
func (r *Runtime) StopSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.service.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

// RemoveSandbox makes the runtime forget a sandbox.
func (r *Runtime) RemoveSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := r.service.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

// Sandboxes lists the sandboxes whose process runs.
func (r *Runtime) Sandboxes(ctx context.Context) ([]*Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := r.service.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{
		State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	var found []*Sandbox
	for _, item := range answer.Items {
		sandbox, err := r.inspect(ctx, item.Id)
		if err != nil {
			return nil, err
		}
		found = append(found, sandbox)
	}
	return found, nil
}

// Exec runs the workload in the running container of a pod and returns what it
// prints.
func (r *Runtime) Exec(ctx context.Context, pod string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	running := &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}
	containers, err := r.service.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{State: running}})
	if err != nil {
		return "", fmt.Errorf("looking for the container of %s: %w", pod, err)
	}
	for _, container := range containers.Containers {
		sandbox, err := r.inspect(ctx, container.PodSandboxId)
		if err != nil {
			return "", err
		}
		if sandbox.Name != pod {
			continue
		}
		request := &cri.ExecSyncRequest{ContainerId: container.Id, Cmd: append([]string{Workload}, arguments...), Timeout: 30}
		answer, err := r.service.ExecSync(ctx, request)
		if err != nil {
			return "", fmt.Errorf("%v in %s: %w", arguments, pod, err)
		}
		if answer.ExitCode != 0 {
			return "", fmt.Errorf("%v in %s: exit code %d: %s", arguments, pod, answer.ExitCode, answer.Stderr)
		}
		return string(answer.Stdout), nil
	}
	return "", fmt.Errorf("%s has no running container", pod)
}
