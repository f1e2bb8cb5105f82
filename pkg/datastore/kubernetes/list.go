package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// pageSize is how many objects one answer holds.
const pageSize = "500"

// page is one answer to a list.
type page struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// list reads all pages. If the list changes so much meanwhile that the server
// cannot go on, it begins again, once.
func (s *Store) list(ctx context.Context, where resource, selector, accept string, each func(document)) error {
	items, err := s.pages(ctx, where, selector, accept)
	if errors.Is(err, errExpired) {
		items, err = s.pages(ctx, where, selector, accept)
	}
	if err != nil {
		return err
	}
	for _, raw := range items {
		if d, err := parseDocument(raw); err == nil {
			each(d)
		}
	}
	return nil
}

func (s *Store) pages(ctx context.Context, where resource, selector, accept string) ([]json.RawMessage, error) {
	query := url.Values{"limit": {pageSize}}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	if where.fields != "" {
		query.Set("fieldSelector", where.fields)
	}
	var items []json.RawMessage
	for {
		body, err := s.send(ctx, request{
			doing: "listing " + where.String(), verb: "list", resource: where.String(),
			method: http.MethodGet, path: where.path(), query: query, accept: accept,
		})
		if err != nil {
			return nil, err
		}
		var p page
		if err := json.Unmarshal(body, &p); err != nil {
			return nil, fmt.Errorf("the answer is no list: %w", err)
		}
		items = append(items, p.Items...)
		if p.Metadata.Continue == "" {
			return items, nil
		}
		query = maps.Clone(query)
		query.Set("continue", p.Metadata.Continue)
	}
}

// entries decodes what a list finds. What does not decode is skipped, and so
// is what is flagged as deleted.
func (b *batch) entries(ctx context.Context, where resource, selector string, like model.Key, keep func(model.Key) bool) (datastore.Answer, error) {
	var answer datastore.Answer
	err := b.list(ctx, where, selector, "", func(d document) {
		entry, err := b.entry(b.group, like, d)
		if err == nil && !deleted(entry.Value) && keep(entry.Key) {
			answer.Entries = append(answer.Entries, entry)
		}
	})
	inOrder(answer.Entries)
	return answer, err
}

// inOrder sorts entries by the text of their keys.
func inOrder(entries []datastore.Entry) {
	slices.SortFunc(entries, func(a, b datastore.Entry) int { return cmp.Compare(a.Key.Path(), b.Key.Path()) })
}

// listAffinities selects on the labels and then looks at the objects
// themselves. Hashes of hosts are no host names.
func (b *batch) listAffinities(ctx context.Context, q datastore.ListAffinities) (datastore.Answer, error) {
	kind := cmp.Or(q.Type, model.AffinityHost)
	if kind != model.AffinityHost && kind != model.AffinityVirtual {
		return datastore.Answer{}, nil // only etcd has others
	}
	selector := selectorOf(model.AffinityLabels(kind, q.Host, q.Family))
	return b.entries(ctx, affinities(b.group), selector, model.AffinityKey{}, func(key model.Key) bool {
		found := key.(model.AffinityKey)
		return found.Type == kind && (q.Host == "" || found.Host == q.Host) && model.FamilyOf(found.CIDR.Addr()) == q.Family
	})
}

func selectorOf(labels map[string]string) string {
	var terms []string
	for name, value := range labels {
		terms = append(terms, name+"="+value)
	}
	slices.Sort(terms)
	return strings.Join(terms, ",")
}

// listBlocks narrows the whole list: names of objects cannot be asked for by
// their beginning.
func (b *batch) listBlocks(ctx context.Context, q datastore.ListBlocks) (datastore.Answer, error) {
	prefix := model.BlockPrefix(q.Family) + q.TextPrefix
	wanted := func(key model.Key) bool { return strings.HasPrefix(key.Path(), prefix) }
	list := func() (datastore.Answer, error) {
		return b.entries(ctx, blocks(b.group), "", model.BlockKey{}, wanted)
	}
	if q.KeysOnly {
		list = func() (datastore.Answer, error) { return b.blockKeys(ctx, wanted) }
	}
	answer, err := list()
	if err == nil && q.Limit > 0 && len(answer.Entries) > q.Limit {
		answer.Entries, answer.More = answer.Entries[:q.Limit], true
	}
	return answer, err
}

// blockKeys asks for the metadata alone and goes by the names.
func (b *batch) blockKeys(ctx context.Context, wanted func(model.Key) bool) (datastore.Answer, error) {
	var answer datastore.Answer
	err := b.list(ctx, blocks(b.group), "", metadataList, func(d document) {
		cidr, ok := model.ParseCIDRName(d.meta.Name)
		if key := (model.BlockKey{CIDR: cidr}); ok && wanted(key) {
			answer.Entries = append(answer.Entries, datastore.Entry{Key: key, Revision: d.revision()})
		}
	})
	inOrder(answer.Entries)
	return answer, err
}

func (b *batch) listHandles(ctx context.Context) (datastore.Answer, error) {
	return b.entries(ctx, handles(b.group), "", model.HandleKey{}, func(model.Key) bool { return true })
}

func (b *batch) listResources(ctx context.Context, q datastore.ListResources) (datastore.Answer, error) {
	switch q.Kind {
	case model.KindProfile:
		return datastore.Answer{}, nil
	case model.KindWorkloadEndpoint:
		return b.listEndpoints(ctx, q)
	}
	like := model.ResourceKey{Kind: q.Kind, Namespace: q.Namespace}
	where, _, err := kindOf(b.group, like)
	if err != nil {
		return datastore.Answer{}, err
	}
	if q.Kind == model.KindPod && q.OnNode != "" {
		where.fields = "spec.nodeName=" + q.OnNode
	}
	return b.entries(ctx, where, "", like, func(key model.Key) bool {
		return strings.HasPrefix(key.(model.ResourceKey).Name, q.NamePrefix)
	})
}
