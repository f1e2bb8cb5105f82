package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// encode writes the object that a create or an update sends. An update keeps
// the metadata that the object was read with: no caller changes those.
func (s *Store) encode(group model.APIGroup, where resource, name string, m datastore.Mutation) ([]byte, error) {
	metadata := model.Unknown{"name": mustEncode(name)}
	members := model.Unknown{"apiVersion": mustEncode(string(group)), "kind": mustEncode(where.kind)}
	kept := foreign{}
	if m.Op == datastore.Update {
		kept = s.kept.of(m.Key, m.Revision)
		maps.Copy(metadata, kept.metadata)
		resourceVersion, _ := splitRevision(m.Revision)
		metadata["resourceVersion"] = mustEncode(resourceVersion)
	}
	switch key := m.Key.(type) {
	case model.ResourceKey:
		if err := resourceMembers(key, m, members, metadata); err != nil {
			return nil, err
		}
	default:
		spec, err := specOf(group, m, kept.spec)
		if err != nil {
			return nil, err
		}
		members["spec"] = spec
	}
	if affinity, ok := m.Key.(model.AffinityKey); ok {
		labels, err := withLabels(metadata["labels"], affinity.Labels())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.Key, err)
		}
		metadata["labels"] = labels
	}
	members["metadata"] = mustEncode(metadata)
	return json.Marshal(members)
}

// mustEncode encodes strings, and objects of what has been encoded, which
// never fails.
func mustEncode(value any) json.RawMessage {
	body, _ := json.Marshal(value)
	return body
}

func specOf(group model.APIGroup, m datastore.Mutation, unknown model.Unknown) (json.RawMessage, error) {
	spec, err := model.EncodeSpec(group, m.Key, m.Value)
	if err != nil || len(unknown) == 0 {
		return spec, err
	}
	members := maps.Clone(unknown)
	if err := json.Unmarshal(spec, &members); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Key, err)
	}
	return json.Marshal(members)
}

// resourceMembers takes spec and status over from the value, and on creation
// its labels and annotations.
func resourceMembers(key model.ResourceKey, m datastore.Mutation, members, metadata model.Unknown) error {
	body, err := model.Encode(key, m.Value)
	if err != nil {
		return err
	}
	value, own := model.Unknown{}, model.Unknown{}
	if err := json.Unmarshal(body, &value); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if err := json.Unmarshal(value["metadata"], &own); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	for name, member := range value {
		if _, given := members[name]; !given && name != "metadata" {
			members[name] = member
		}
	}
	if m.Op == datastore.Create {
		for _, name := range []string{"labels", "annotations", "finalizers"} {
			if member, ok := own[name]; ok {
				metadata[name] = member
			}
		}
	}
	return nil
}

func withLabels(have json.RawMessage, add map[string]string) (json.RawMessage, error) {
	labels := map[string]string{}
	if len(have) > 0 {
		if err := json.Unmarshal(have, &labels); err != nil {
			return nil, fmt.Errorf("labels: %w", err)
		}
	}
	maps.Copy(labels, add)
	return json.Marshal(labels)
}

// preconditions are what a deletion demands of the object.
type preconditions struct {
	UID             string `json:"uid,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// deletion is one request: the server checks identity and version together
// (IPAM contract 5.2).
func deletion(where resource, name string, key model.Key, at datastore.Revision) (request, error) {
	r := request{
		doing: "deleting the " + key.String(), verb: "delete", resource: where.String(),
		method: http.MethodDelete, path: where.object(name),
	}
	if at == datastore.Any {
		return r, nil
	}
	resourceVersion, uid := splitRevision(at)
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": preconditions{UID: uid, ResourceVersion: resourceVersion},
	})
	r.body, r.contentType = body, contentJSON
	return r, err
}

func (s *Store) deleteObject(ctx context.Context, where resource, name string, key model.Key, at datastore.Revision) error {
	r, err := deletion(where, name, key, at)
	if err != nil {
		return err
	}
	_, err = s.send(ctx, r)
	return err
}
