package keyspace

import (
	"fmt"
	"strings"

	"calico-cni/pkg/datastore"
)

// most is how many objects a message names.
const most = 8

// Names says for a message what is asked.
func Names(queries []datastore.Query) string {
	return list(len(queries), func(i int) string { return queries[i].String() })
}

// Names says for a message what is written, or only compared.
func (t Transaction) Names() string {
	if len(t.Changes) == 0 {
		return list(len(t.Guards), func(i int) string { return t.Guards[i].Key.String() })
	}
	return list(len(t.Changes), func(i int) string { return t.Changes[i].Key.String() })
}

func list(count int, name func(int) string) string {
	texts := make([]string, 0, most+1)
	for i := range min(count, most) {
		texts = append(texts, name(i))
	}
	if count > most {
		texts = append(texts, fmt.Sprintf("and %d more", count-most))
	}
	return strings.Join(texts, ", ")
}
