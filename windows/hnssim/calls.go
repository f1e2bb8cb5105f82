package hnssim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"calico-cni/windows/hns"
)

// Call is one call of an exported function of HNS.
type Call struct {
	// Name is the function's without "Hcn", like CreateEndpoint.
	Name string
	// ID is the object's, Document what was sent.
	ID, Document string
	Err          error
}

// Changes reports whether calls of this kind change something.
func (c Call) Changes() bool {
	return strings.HasPrefix(c.Name, "Create") || strings.HasPrefix(c.Name, "Modify") || strings.HasPrefix(c.Name, "Delete")
}

// Fault makes calls fail. The zero Code only delays, or runs During.
type Fault struct {
	// Call is the name of the function; empty: any.
	Call string
	// Skip lets the first so many calls of the name pass, Times makes so many of
	// those after them fail; 0: all.
	Skip, Times int
	Code        hns.Code
	// After: the work is done all the same.
	After bool
	// Delay passes before the call.
	Delay time.Duration
	// During runs before the call, Afterwards when it is over; both without the
	// engine's own lock.
	During, Afterwards func()

	seen int
}

func (f *Fault) hits(name string) bool {
	if f.Call != "" && f.Call != name {
		return false
	}
	f.seen++
	return f.seen > f.Skip && (f.Times == 0 || f.seen <= f.Skip+f.Times)
}

// Inject adds a fault; ClearFaults removes all.
func (e *Engine) Inject(fault Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, &fault)
}

// ClearFaults removes all faults.
func (e *Engine) ClearFaults() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = nil
}

// Calls returns the log of calls, ClearLog empties it.
func (e *Engine) Calls() []Call {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

// Changes are the calls of the log that change something.
func (e *Engine) Changes() []Call {
	return slices.DeleteFunc(e.Calls(), func(c Call) bool { return !c.Changes() })
}

// Operations are the operations at the plugin's interface, by method.
func (e *Engine) Operations() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.operations)
}

// ClearLog empties the logs of calls and operations.
func (e *Engine) ClearLog() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls, e.operations = nil, nil
}

// Findings are what was accepted but is a mistake.
func (e *Engine) Findings() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.findings)
}

// Elsewhere runs what another agent does, whose calls are no findings.
func (e *Engine) Elsewhere(do func()) {
	e.mu.Lock()
	e.quiet++
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.quiet--
		e.mu.Unlock()
	}()
	do()
}

func (e *Engine) finding(format string, args ...any) {
	if e.quiet == 0 {
		e.findings = append(e.findings, fmt.Sprintf(format, args...))
	}
}

// call runs one function of HNS with its faults, and logs it. Networks may be
// changed and endpoints made only under the plugins' lock.
func (e *Engine) call(ctx context.Context, c Call, do func() error) error {
	hit, err := e.callOnce(ctx, c, do)
	if hit != nil && hit.Afterwards != nil {
		hit.Afterwards()
	}
	return err
}

func (e *Engine) callOnce(ctx context.Context, c Call, do func() error) (*Fault, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	hit := e.strike(c)
	if err := ctx.Err(); err != nil {
		return hit, err
	}
	c.Err = e.carryOut(c, hit, e.locked || isUnderLock(ctx), do)
	e.calls = append(e.calls, c)
	return hit, c.Err
}

// strike finds the fault of a call and lets it delay the call.
func (e *Engine) strike(c Call) *Fault {
	var hit *Fault
	for _, fault := range e.faults {
		if fault.hits(c.Name) && hit == nil {
			hit = fault
		}
	}
	if hit == nil {
		return nil
	}
	e.elapsed += hit.Delay
	if hit.During != nil {
		e.mu.Unlock()
		hit.During()
		e.mu.Lock()
	}
	return hit
}

// underLock marks a context, see UnderLock.
type underLock struct{}

// UnderLock is the context of calls of a process that holds the network lock,
// where that is none of the engine's.
func UnderLock(ctx context.Context) context.Context { return context.WithValue(ctx, underLock{}, true) }

func isUnderLock(ctx context.Context) bool { return ctx.Value(underLock{}) != nil }

func (e *Engine) carryOut(c Call, hit *Fault, locked bool, do func() error) error {
	failing := hit != nil && hit.Code != 0
	if failing && !hit.After {
		return &hns.Error{Call: c.Name, Code: hit.Code, Text: "injected"}
	}
	if needsLock(c.Name) && !locked {
		e.finding("%s outside the network lock: %s", c.Name, c.Document)
	}
	if err := do(); err != nil {
		return err
	}
	if failing {
		return &hns.Error{Call: c.Name, Code: hit.Code, Text: "injected after the work"}
	}
	return nil
}

func needsLock(call string) bool {
	switch call {
	case "CreateNetwork", "ModifyNetwork", "DeleteNetwork", "CreateEndpoint":
		return true
	}
	return false
}

func fail(call string, code hns.Code, format string, args ...any) error {
	return &hns.Error{Call: call, Code: code, Text: fmt.Sprintf(format, args...)}
}

// Enumerate lists the ids of objects in arbitrary order. The query's filter
// matches exactly.
func (e *Engine) Enumerate(ctx context.Context, kind Kind, query string) (ids []string, err error) {
	err = e.call(ctx, Call{Name: "Enumerate" + string(kind) + "s", Document: query}, func() error {
		matches, err := filterOf(query)
		if err != nil {
			return err
		}
		ids = []string{}
		for id, properties := range e.properties(kind) {
			if matches(properties) {
				ids = append(ids, e.spelled(id))
			}
		}
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		return nil
	})
	return ids, err
}

// properties are the members of the objects that a filter may name.
func (e *Engine) properties(kind Kind) map[string]map[string]string {
	all := map[string]map[string]string{}
	switch kind {
	case Network:
		for _, n := range e.networks {
			all[n.ID] = map[string]string{"ID": n.ID, "Name": n.Name, "Type": string(n.Type)}
		}
	case Endpoint:
		for _, ep := range e.endpoints {
			all[ep.ID] = map[string]string{"ID": ep.ID, "Name": ep.Name, "VirtualNetwork": ep.HostComputeNetwork}
		}
	case Namespace:
		for _, n := range e.namespaces {
			all[n.ID] = map[string]string{"ID": n.ID, "Type": n.Type}
		}
	}
	return all
}

func filterOf(query string) (func(map[string]string) bool, error) {
	var q struct {
		SchemaVersion hns.SchemaVersion
		Filter        string
	}
	if query != "" {
		if err := json.Unmarshal([]byte(query), &q); err != nil || q.SchemaVersion.Major != 2 {
			return nil, fail("Enumerate", hns.InvalidJSON, "query %q", query)
		}
	}
	var wanted map[string]string
	if q.Filter != "" {
		if err := json.Unmarshal([]byte(q.Filter), &wanted); err != nil {
			return nil, fail("Enumerate", hns.InvalidJSON, "filter %q", q.Filter)
		}
	}
	return func(properties map[string]string) bool {
		for name, value := range wanted {
			if name == "ID" || name == "VirtualNetwork" {
				if !hns.SameID(properties[name], value) {
					return false
				}
			} else if properties[name] != value {
				return false
			}
		}
		return true
	}, nil
}

// Open looks an object up.
func (e *Engine) Open(ctx context.Context, kind Kind, id string) error {
	return e.call(ctx, Call{Name: "Open" + string(kind), ID: id}, func() error { return e.missing("Open", kind, id) })
}

func (e *Engine) missing(doing string, kind Kind, id string) error {
	switch kind {
	case Network:
		if e.findNetwork(id) == nil {
			return fail(doing+string(kind), hns.NetworkNotFound, "%s", id)
		}
	case Endpoint:
		if e.findEndpoint(id) == nil {
			return fail(doing+string(kind), hns.EndpointNotFound, "%s", id)
		}
	case Namespace:
		if e.findNamespace(id) == nil {
			return fail(doing+string(kind), hns.ElementNotFound, "%s", id)
		}
	}
	return nil
}

// Query returns an object's document.
func (e *Engine) Query(ctx context.Context, kind Kind, id string) (document string, err error) {
	err = e.call(ctx, Call{Name: "Query" + string(kind) + "Properties", ID: id}, func() error {
		if err := e.missing("Query", kind, id); err != nil {
			return err
		}
		var shown any
		switch kind {
		case Network:
			shown = e.showNetwork(e.findNetwork(id))
		case Endpoint:
			shown = e.showEndpoint(e.findEndpoint(id))
		case Namespace:
			shown = e.showNamespace(e.findNamespace(id))
		}
		body, err := json.Marshal(shown)
		document = string(body)
		return err
	})
	return document, err
}

// Create makes an object and returns its id. parent is an endpoint's network.
func (e *Engine) Create(ctx context.Context, kind Kind, parent, document string) (id string, err error) {
	err = e.call(ctx, Call{Name: "Create" + string(kind), ID: parent, Document: document}, func() (err error) {
		switch kind {
		case Network:
			id, err = e.createNetwork(document)
		case Endpoint:
			id, err = e.createEndpoint(parent, document)
		case Namespace:
			id, err = e.createNamespace(document)
		}
		return err
	})
	return id, err
}

// Modify changes an object.
func (e *Engine) Modify(ctx context.Context, kind Kind, id, document string) error {
	return e.call(ctx, Call{Name: "Modify" + string(kind), ID: id, Document: document}, func() error {
		if err := e.missing("Modify", kind, id); err != nil {
			return err
		}
		var request modification
		if err := json.Unmarshal([]byte(document), &request); err != nil {
			return fail("Modify"+string(kind), hns.InvalidJSON, "%v", err)
		}
		switch kind {
		case Network:
			return e.modifyNetwork(e.findNetwork(id), request)
		case Endpoint:
			return e.modifyEndpoint(e.findEndpoint(id), request)
		default:
			return e.modifyNamespace(e.findNamespace(id), request)
		}
	})
}

// modification is the document of a change.
type modification struct {
	ResourceType, RequestType string
	Settings                  json.RawMessage
}

// Delete removes an object.
func (e *Engine) Delete(ctx context.Context, kind Kind, id string) error {
	return e.call(ctx, Call{Name: "Delete" + string(kind), ID: id}, func() error {
		if err := e.missing("Delete", kind, id); err != nil {
			return err
		}
		switch kind {
		case Network:
			e.deleteNetwork(e.findNetwork(id))
		case Endpoint:
			e.deleteEndpoint(e.findEndpoint(id))
		case Namespace:
			e.namespaces = without(e.namespaces, e.findNamespace(id))
		}
		return nil
	})
}

// GlobalVersion is what the version of HNS is asked with.
func (e *Engine) GlobalVersion(ctx context.Context) (version hns.Version, err error) {
	err = e.call(ctx, Call{Name: "GlobalVersion"}, func() error {
		version = e.profile.Version
		return nil
	})
	return version, err
}

// TakeFaults sets the faults aside, PutFaults brings them back.
func (e *Engine) TakeFaults() []*Fault {
	e.mu.Lock()
	defer e.mu.Unlock()
	faults := e.faults
	e.faults = nil
	return faults
}

// PutFaults brings faults back that were set aside.
func (e *Engine) PutFaults(faults []*Fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = append(e.faults, faults...)
}
