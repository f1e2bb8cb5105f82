package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/datastore/keyspace"
	"calico-cni/pkg/model"
)

// Write implements datastore.Store: the requests of a step go out together,
// step after step, until one fails. Expectations are not looked at.
func (s *Store) Write(ctx context.Context, steps ...datastore.Step) (datastore.Written, error) {
	changes, names, err := changesOf(steps)
	if err != nil {
		return nil, fmt.Errorf("writing: %w", err)
	}
	if names == "" {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, unavailable(datastore.Unreachable, "writing "+names, context.Cause(ctx))
	}
	group := s.Group(ctx)
	requests := make([][]request, len(changes))
	for i, step := range changes {
		for _, m := range step {
			r, err := s.requestFor(group, m)
			if err != nil {
				return nil, fmt.Errorf("writing: %w", err)
			}
			requests[i] = append(requests[i], r)
		}
	}
	written := datastore.Written{}
	for i, step := range changes {
		if err := s.writeStep(ctx, step, requests[i], written, i); err != nil {
			return written, err
		}
	}
	return written, nil
}

// changesOf returns the steps without their expectations and what they write.
// An error is a mistake of the caller: the same that engines with transactions
// refuse.
func changesOf(steps []datastore.Step) (changes []datastore.Step, names string, err error) {
	changes = make([]datastore.Step, len(steps))
	for i, step := range steps {
		compiled, err := keyspace.Compile(func(*model.Metadata) {}, step)
		if err != nil {
			return nil, "", err
		}
		if len(compiled.Changes) > 0 {
			names += compiled.Names()
		}
		for _, m := range step {
			if m.Op != datastore.Expect {
				changes[i] = append(changes[i], m)
			}
		}
	}
	return changes, names, nil
}

// writeStep sends the requests of a step. Of several failures the one that
// leaves most in doubt is returned.
func (s *Store) writeStep(ctx context.Context, step datastore.Step, requests []request, written datastore.Written, applied int) error {
	revisions, errs := make([]datastore.Revision, len(step)), make([]error, len(step))
	together(len(step), func(i int) { revisions[i], errs[i] = s.writeOne(ctx, step[i], requests[i]) })
	var failed error
	for i, m := range step {
		err := asConflict(errs[i], m.Key, applied)
		switch {
		case err == nil && revisions[i] != datastore.Absent:
			written[m.Key] = revisions[i]
		case err != nil && (failed == nil || unknownOutcome(err) && !unknownOutcome(failed)):
			failed = err
		}
	}
	return failed
}

func unknownOutcome(err error) bool {
	return errors.Is(err, datastore.ErrUnavailable) && datastore.ReasonOf(err) == datastore.OutcomeUnknown
}

func asConflict(err error, key model.Key, applied int) error {
	var refusal *stale
	if !errors.As(err, &refusal) {
		return err
	}
	for _, kind := range []error{datastore.ErrConflict, datastore.ErrExists, datastore.ErrNotFound} {
		if errors.Is(refusal, kind) {
			return &datastore.ConflictError{Kind: kind, Key: key, Applied: applied}
		}
	}
	return unavailable(datastore.Unreachable, "writing the "+key.String(), refusal.text)
}

// writeOne returns the new revision of what it wrote.
func (s *Store) writeOne(ctx context.Context, m datastore.Mutation, r request) (datastore.Revision, error) {
	if node, ok := m.Value.(*model.Node); ok {
		var err error
		if r.body, err = s.nodeBody(ctx, m, node); err != nil {
			return datastore.Absent, err
		}
	}
	body, err := s.send(ctx, r)
	if m.Op == datastore.Delete {
		if m.Revision == datastore.Any && errors.Is(err, datastore.ErrNotFound) {
			err = nil
		}
		return datastore.Absent, err
	}
	if err != nil {
		return datastore.Absent, err
	}
	d, err := parseDocument(body)
	if err != nil || d.meta.ResourceVersion == "" {
		return datastore.Absent, unavailable(datastore.OutcomeUnknown, r.doing, errors.New("the answer is not the object written"))
	}
	s.kept.keep(m.Key, d)
	return d.revision(), nil
}

// requestFor prepares a mutation. An error is a mistake of the caller.
func (s *Store) requestFor(group model.APIGroup, m datastore.Mutation) (request, error) {
	where, name, err := resourceOf(group, m.Key)
	if err != nil {
		return request{}, err
	}
	if resourceKey, ok := m.Key.(model.ResourceKey); ok {
		switch resourceKey.Kind {
		case model.KindWorkloadEndpoint:
			return endpointRequest(where, name, m)
		case model.KindNode:
			return nodeRequest(where, name, m)
		case model.KindPod, model.KindNamespace, model.KindVirtualMachine, model.KindVirtualMachineInstance:
			return request{}, fmt.Errorf("%s: not Calico's to write", m.Key)
		}
	}
	r := request{resource: where.String(), contentType: contentJSON}
	switch m.Op {
	case datastore.Create:
		r.doing, r.verb, r.method, r.path = "creating the "+m.Key.String(), "create", http.MethodPost, where.path()
		r.body, err = s.encode(group, where, name, m)
	case datastore.Update:
		r.doing, r.verb, r.method, r.path = "updating the "+m.Key.String(), "update", http.MethodPut, where.object(name)
		r.body, err = s.encode(group, where, name, m)
	default:
		return deletion(where, name, m.Key, m.Revision)
	}
	return r, err
}

func endpointRequest(where resource, name string, m datastore.Mutation) (request, error) {
	body, err := endpointPatch(m)
	return request{
		doing: "writing the " + m.Key.String(), verb: "patch", resource: where.String() + "/status",
		method: http.MethodPatch, path: where.object(name) + "/status",
		body: body, contentType: contentPatch, accept: metadataOnly,
	}, err
}
