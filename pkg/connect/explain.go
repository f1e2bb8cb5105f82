package connect

import (
	"errors"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/datastore"
)

// Explain gives an error of a datastore its CNI code, unless it has one: 11
// unavailable, 113 refused, 109 locked. Anything else stays without code.
func Explain(err error) error {
	if err == nil || !errors.Is(err, datastore.ErrUnavailable) || cnierr.CodeOf(err) != cnierr.Unclassified {
		return err
	}
	switch datastore.ReasonOf(err) {
	case datastore.Refused:
		return cnierr.New(cnierr.DatastoreRefused, "%w", err)
	case datastore.Locked:
		return cnierr.New(cnierr.LockNotObtained, "%w", err)
	}
	return cnierr.New(cnierr.TryAgainLater, "%w", err)
}
