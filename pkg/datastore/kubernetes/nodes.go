package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// nodeRequest prepares the update of a node, which only the account of the node
// agent may do (datastore contract 4.7, 7). Its body is made of what the node
// is then.
func nodeRequest(where resource, name string, m datastore.Mutation) (request, error) {
	if m.Op != datastore.Update {
		return request{}, fmt.Errorf("%s: nodes are Kubernetes' to make and to remove", m.Key)
	}
	return request{
		doing: "updating the " + m.Key.String(), verb: "update", resource: where.String() + "/status",
		method: http.MethodPut, path: where.object(name) + "/status", contentType: contentJSON,
	}, nil
}

// nodeBody reads the live node and changes nothing but Calico's annotations.
func (s *Store) nodeBody(ctx context.Context, m datastore.Mutation, node *model.Node) ([]byte, error) {
	live, err := s.getDocument(ctx, core(model.KindNode, ""), node.Metadata.Name, m.Key)
	switch {
	case err != nil:
		return nil, err
	case live == nil:
		return nil, &stale{datastore.ErrNotFound, fmt.Errorf("node %s is gone", node.Metadata.Name)}
	case live.revision() != m.Revision:
		return nil, &stale{datastore.ErrConflict, fmt.Errorf("node %s is at another revision", node.Metadata.Name)}
	}
	members, metadata, annotations := model.Unknown{}, model.Unknown{}, map[string]string{}
	if err := json.Unmarshal(live.raw, &members); err != nil {
		return nil, unavailable(datastore.Unreachable, "reading the "+m.Key.String(), err)
	}
	if err := json.Unmarshal(live.metadata, &metadata); err != nil {
		return nil, unavailable(datastore.Unreachable, "reading the "+m.Key.String(), err)
	}
	_ = json.Unmarshal(metadata["annotations"], &annotations) // absent is none
	own, err := model.NodeAnnotations(node)
	if err != nil {
		return nil, err
	}
	for name, value := range own {
		if annotations[name] = value; value == "" {
			delete(annotations, name)
		}
	}
	delete(metadata, "managedFields")
	metadata["annotations"] = mustEncode(annotations)
	members["metadata"] = mustEncode(metadata)
	return json.Marshal(members)
}
