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

// page is one answer to a list: objects, or the rows of a table.
type page struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items   []json.RawMessage `json:"items"`
	Columns []struct {
		Format string `json:"format"`
	} `json:"columnDefinitions"`
	Rows []struct {
		Cells []any `json:"cells"`
	} `json:"rows"`
}

// list reads all pages.
func (s *Store) list(ctx context.Context, where resource, selector string, each func(document)) error {
	query := url.Values{}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	if where.fields != "" {
		query.Set("fieldSelector", where.fields)
	}
	pages, err := s.pages(ctx, where, query, "")
	for _, p := range pages {
		for _, raw := range p.Items {
			if d, err := parseDocument(raw); err == nil {
				each(d)
			}
		}
	}
	return err
}

// pages reads all pages. If the list changes so much meanwhile that the server
// cannot go on, it begins again, once.
func (s *Store) pages(ctx context.Context, where resource, query url.Values, accept string) ([]page, error) {
	pages, err := s.pagesOnce(ctx, where, query, accept)
	if errors.Is(err, errExpired) {
		pages, err = s.pagesOnce(ctx, where, query, accept)
	}
	return pages, err
}

func (s *Store) pagesOnce(ctx context.Context, where resource, query url.Values, accept string) ([]page, error) {
	query = maps.Clone(query)
	query.Set("limit", pageSize)
	var pages []page
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
		pages = append(pages, p)
		if p.Metadata.Continue == "" {
			return pages, nil
		}
		query = maps.Clone(query)
		query.Set("continue", p.Metadata.Continue)
	}
}

// entries decodes what a list finds. What does not decode is skipped, and so
// is what is flagged as deleted.
func (b *batch) entries(ctx context.Context, where resource, selector string, like model.Key, keep func(model.Key) bool) (datastore.Answer, error) {
	var answer datastore.Answer
	err := b.list(ctx, where, selector, func(d document) {
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

// blockKeys goes by the names.
func (b *batch) blockKeys(ctx context.Context, wanted func(model.Key) bool) (datastore.Answer, error) {
	names, err := b.names(ctx, blocks(b.group))
	if err != nil {
		return datastore.Answer{}, err
	}
	var answer datastore.Answer
	for _, name := range names {
		cidr, ok := model.ParseCIDRName(name)
		if key := (model.BlockKey{CIDR: cidr}); ok && wanted(key) {
			answer.Entries = append(answer.Entries, datastore.Entry{Key: key})
		}
	}
	inOrder(answer.Entries)
	return answer, nil
}

// names asks for a table, whose rows hold little more than the names: metadata
// are ten times as long. A server that has no table for a kind sends metadata.
func (s *Store) names(ctx context.Context, where resource) ([]string, error) {
	pages, err := s.pages(ctx, where, url.Values{"includeObject": {"None"}}, tableOrMetadata)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range pages {
		for _, raw := range p.Items {
			if d, err := parseDocument(raw); err == nil {
				names = append(names, d.meta.Name)
			}
		}
		inTable, err := p.namesInTable()
		if err != nil {
			return nil, err
		}
		names = append(names, inTable...)
	}
	return names, nil
}

// namesInTable are the cells of the column that holds names, which the server
// marks by its format.
func (p page) namesInTable() ([]string, error) {
	if len(p.Rows) == 0 {
		return nil, nil
	}
	at := -1
	for i, column := range p.Columns {
		if column.Format == "name" {
			at = i
		}
	}
	var names []string
	for _, row := range p.Rows {
		if at < 0 || at >= len(row.Cells) {
			return nil, errors.New("the answer is a table that tells no names")
		}
		if name, ok := row.Cells[at].(string); ok {
			names = append(names, name)
		}
	}
	return names, nil
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
