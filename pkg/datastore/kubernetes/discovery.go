package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Group is the group that the store uses. If the options do not name it, the
// server is asked once.
func (s *Store) Group(ctx context.Context) model.APIGroup {
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	if s.groups.group == "" {
		group, err := s.Discover(ctx)
		if err != nil {
			return group // the next call asks again
		}
		s.groups.group = group
	}
	return s.groups.group
}

// Discover asks the server which group holds Calico's objects: the native one
// only if the other is absent, since the native one may also be a view that
// another server gives of it. It is the older one too if the question fails
// (datastore contract 1.1).
func (s *Store) Discover(ctx context.Context) (model.APIGroup, error) {
	body, err := s.send(ctx, request{
		doing: "asking for the API groups", verb: "get", resource: "/apis", method: http.MethodGet, path: "/apis",
	})
	if err != nil {
		return model.GroupV1, err
	}
	var list struct {
		Groups []struct {
			Name string `json:"name"`
		} `json:"groups"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return model.GroupV1, unavailable(datastore.Unreachable, "asking for the API groups", fmt.Errorf("the answer is no list of groups: %w", err))
	}
	served := map[string]bool{}
	for _, group := range list.Groups {
		served[group.Name] = true
	}
	if served[groupName(model.GroupV3)] && !served[groupName(model.GroupV1)] {
		return model.GroupV3, nil
	}
	return model.GroupV1, nil
}

func groupName(group model.APIGroup) string {
	name, _, _ := strings.Cut(string(group), "/")
	return name
}
