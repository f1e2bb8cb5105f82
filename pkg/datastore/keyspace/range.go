package keyspace

import (
	"errors"
	"fmt"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// Range is what a query reads: one key, or every key that begins so.
type Range struct {
	// Path is the key, or with Prefix the beginning of the keys.
	Path   string
	Prefix bool
	// KeysOnly asks for no values.
	KeysOnly bool
	// Limit cuts the number of records read; 0 does not.
	Limit int
}

// RangeOf returns what has to be read to answer a query. An error means that
// no object could have such a key: the query is a mistake of the caller.
func RangeOf(query datastore.Query) (Range, error) {
	switch q := query.(type) {
	case datastore.Get:
		path, err := PathOf(q.Key)
		return Range{Path: path}, err
	case datastore.ListAffinities:
		return affinityRange(q)
	case datastore.ListBlocks:
		if err := checkFamily(q.Family); err != nil {
			return Range{}, err
		}
		path := model.BlockPrefix(q.Family) + q.TextPrefix
		return Range{Path: path, Prefix: true, KeysOnly: q.KeysOnly, Limit: max(q.Limit, 0)}, nil
	case datastore.ListHandles:
		return Range{Path: model.HandlePrefix(), Prefix: true}, nil
	case datastore.ListResources:
		return resourceRange(q)
	}
	return Range{}, fmt.Errorf("%T is not a query", query)
}

func affinityRange(q datastore.ListAffinities) (Range, error) {
	if err := checkFamily(q.Family); err != nil {
		return Range{}, err
	}
	if q.Host == "" {
		return Range{Path: model.AffinityTypePrefix(affinityType(q)), Prefix: true}, nil
	}
	return Range{Path: model.AffinityPrefix(affinityType(q), q.Host, q.Family), Prefix: true}, nil
}

// affinityType is the type that is listed: without one, the hosts' (datastore
// contract 2).
func affinityType(q datastore.ListAffinities) string {
	if q.Type == "" {
		return model.AffinityHost
	}
	return q.Type
}

func resourceRange(q datastore.ListResources) (Range, error) {
	switch namespaced := q.Kind.Namespaced(); {
	case q.Namespace != "" && !namespaced:
		return Range{}, fmt.Errorf("%s: the kind has no namespaces", q)
	case q.NamePrefix != "" && q.Namespace == "" && namespaced:
		return Range{}, fmt.Errorf("%s: a name prefix needs a namespace", q)
	}
	return Range{Path: model.ResourcePrefix(q.Kind, q.Namespace) + q.NamePrefix, Prefix: true}, nil
}

func checkFamily(family model.Family) error {
	if family != model.IPv4 && family != model.IPv6 {
		return fmt.Errorf("%d is not an address family", int(family))
	}
	return nil
}

// PathOf is key.Path for keys that lead back to the same object. A host name
// with a slash, say, would reach into somebody else's part of the keyspace.
func PathOf(key model.Key) (string, error) {
	if key == nil {
		return "", errors.New("no key")
	}
	path := key.Path()
	if parsed, ok := model.ParsePath(path); !ok || parsed != key {
		return "", fmt.Errorf("%s: no object can have the key %q", key, path)
	}
	return path, nil
}
