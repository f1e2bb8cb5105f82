package kubernetes

import (
	"encoding/json"
	"fmt"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// document is an object of the API server whose spec is not looked at yet.
type document struct {
	raw  []byte
	meta struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		UID             string            `json:"uid"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
	}
	metadata json.RawMessage
	spec     json.RawMessage
}

func parseDocument(raw []byte) (document, error) {
	var members struct {
		Metadata json.RawMessage `json:"metadata"`
		Spec     json.RawMessage `json:"spec"`
	}
	d := document{raw: raw}
	if err := json.Unmarshal(raw, &members); err != nil {
		return d, err
	}
	d.metadata, d.spec = members.Metadata, members.Spec
	return d, json.Unmarshal(d.metadata, &d.meta)
}

func (d document) revision() datastore.Revision { return revision(d.meta.ResourceVersion, d.meta.UID) }

// entry decodes the object that a key, or any key of its type, asks for.
func (s *Store) entry(group model.APIGroup, like model.Key, d document) (datastore.Entry, error) {
	resourceKey, isResource := like.(model.ResourceKey)
	if !isResource {
		key, value, err := model.DecodeSpec(like, d.spec)
		if err != nil {
			return datastore.Entry{}, fmt.Errorf("decoding %s: %w", d.meta.Name, err)
		}
		s.kept.keep(key, d)
		return datastore.Entry{Key: key, Value: value, Revision: d.revision()}, nil
	}
	resourceKey.Namespace, resourceKey.Name = d.meta.Namespace, d.meta.Name
	value, err := s.decodeResource(group, resourceKey, d)
	if err != nil {
		return datastore.Entry{}, err
	}
	s.kept.keep(resourceKey, d)
	return datastore.Entry{Key: resourceKey, Value: value, Revision: d.revision()}, nil
}

func (s *Store) decodeResource(group model.APIGroup, key model.ResourceKey, d document) (any, error) {
	switch key.Kind {
	case model.KindNode:
		return model.DecodeCoreNode(d.raw)
	case model.KindNamespace, model.KindPod, model.KindVirtualMachine, model.KindVirtualMachineInstance:
		return model.Decode(key, d.raw)
	}
	return model.DecodeResource(group, key, d.raw)
}

// deleted reports whether another writer has taken the first of its two steps
// to delete the object (datastore contract 3.3).
func deleted(value any) bool {
	switch v := value.(type) {
	case *model.Block:
		return v.Deleted
	case *model.Affinity:
		return v.Deleted
	case *model.Handle:
		return v.Deleted
	}
	return false
}
