package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/pkg/workload"
)

// endpointInterface is in the name of every endpoint that is a pod.
const endpointInterface = "eth0"

// podOf is the pod that an endpoint is a view of.
func podOf(key model.ResourceKey) (string, error) {
	_, orchestrator, pod, _, err := workload.SplitEndpointName(key.Name)
	if err != nil {
		return "", err
	}
	if orchestrator != workload.OrchestratorKubernetes {
		return "", fmt.Errorf("%s is not a pod's: a Kubernetes datastore has no others", key)
	}
	return pod, nil
}

// endpointEntry projects a pod (datastore contract 4.11). ok is false for a pod
// that is no endpoint.
func (s *Store) endpointEntry(d document) (entry datastore.Entry, ok bool, err error) {
	pod := &model.Pod{}
	if err := json.Unmarshal(d.raw, pod); err != nil {
		return entry, false, fmt.Errorf("decoding a pod: %w", err)
	}
	if !pod.IsEndpoint() {
		return entry, false, nil
	}
	id := workload.Identity{
		Node: pod.Node, Orchestrator: workload.OrchestratorKubernetes, Namespace: pod.Metadata.Namespace,
		Pod: pod.Metadata.Name, Attachment: workload.Attachment{IfName: endpointInterface},
	}
	name, err := id.EndpointName()
	if err != nil {
		return entry, false, err
	}
	return datastore.Entry{
		Key:      model.ResourceKey{Kind: model.KindWorkloadEndpoint, Namespace: pod.Metadata.Namespace, Name: name},
		Value:    pod.Endpoint(name, id.HostInterface(s.prefix)),
		Revision: d.revision(),
	}, true, nil
}

func (b *batch) getEndpoint(ctx context.Context, key model.ResourceKey) (datastore.Answer, error) {
	pod, err := podOf(key)
	if err != nil {
		return datastore.Answer{}, nil // no pod has such a name
	}
	return b.endpointsOf(ctx, key.Namespace, pod, func(name string) bool { return name == key.Name })
}

// endpointsOf gets one pod: the plugins may not list any.
func (b *batch) endpointsOf(ctx context.Context, namespace, pod string, wanted func(name string) bool) (datastore.Answer, error) {
	key := model.ResourceKey{Kind: model.KindPod, Namespace: namespace, Name: pod}
	found, err := b.fetch(ctx, pods(namespace), pod, key)
	if err != nil || found == nil {
		return datastore.Answer{}, err
	}
	entry, ok, err := b.endpointEntry(*found)
	if err != nil || !ok || !wanted(entry.Key.(model.ResourceKey).Name) {
		return datastore.Answer{}, err
	}
	return datastore.Answer{Entries: []datastore.Entry{entry}}, nil
}

// listEndpoints gets the pod if the prefix names one. Any other list needs more
// rights than the plugins have; tools use it.
func (b *batch) listEndpoints(ctx context.Context, q datastore.ListResources) (datastore.Answer, error) {
	wanted := func(name string) bool { return strings.HasPrefix(name, q.NamePrefix) }
	_, orchestrator, pod, _, err := workload.SplitEndpointName(q.NamePrefix + endpointInterface)
	switch {
	case err != nil:
	case orchestrator != workload.OrchestratorKubernetes:
		return datastore.Answer{}, nil
	default:
		return b.endpointsOf(ctx, q.Namespace, pod, wanted)
	}
	var answer datastore.Answer
	err = b.list(ctx, pods(q.Namespace), "", func(d document) {
		entry, ok, err := b.endpointEntry(d)
		if err == nil && ok && wanted(entry.Key.(model.ResourceKey).Name) {
			answer.Entries = append(answer.Entries, entry)
		}
	})
	inOrder(answer.Entries)
	return answer, err
}

// endpointPatch is what a mutation of an endpoint writes into its pod.
func endpointPatch(m datastore.Mutation) ([]byte, error) {
	annotations := map[string]string{}
	metadata := map[string]any{"annotations": annotations}
	resourceVersion, uid := splitRevision(m.Revision)
	if m.Op == datastore.Delete {
		// The container's id stays: a repeated DEL needs it.
		annotations[model.AnnotationPodIP], annotations[model.AnnotationPodIPs] = "", ""
		if m.Revision == datastore.Any {
			resourceVersion, uid = "", ""
		}
	} else {
		endpoint := m.Value.(*model.WorkloadEndpoint)
		if uid == "" {
			uid = endpoint.Metadata.UID
		}
		resourceVersion = "" // kubelet lets one ADD at a time touch a pod
		annotate(annotations, endpoint.Spec)
	}
	// The identity keeps a late ADD from writing to a pod made anew.
	if uid != "" {
		metadata["uid"] = uid
	}
	if resourceVersion != "" {
		metadata["resourceVersion"] = resourceVersion
	}
	return json.Marshal(map[string]any{"metadata": metadata})
}

func annotate(annotations map[string]string, spec model.WorkloadEndpointSpec) {
	if spec.ContainerID != "" {
		annotations[model.AnnotationContainerID] = spec.ContainerID
	}
	if len(spec.IPNetworks) > 0 {
		annotations[model.AnnotationPodIP] = spec.IPNetworks[0]
		annotations[model.AnnotationPodIPs] = strings.Join(spec.IPNetworks, ",")
	}
}
