package kubernetes

import (
	"context"
	"strings"
	"sync"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/pkg/workload"
)

// inFlight bounds the requests on their way, of all calls: a server takes 100
// at once on one connection, and there is no second one.
const inFlight = 64

// Store is a datastore in a Kubernetes API server. It keeps what other writers
// put into the metadata of the objects it has read until they are written, so
// revisions must be handed back to the store that gave them.
type Store struct {
	current *current
	groups  groupChoice
	kept    *keepsake
	prefix  string
	rate    limiter
	// slots has room for what may be in flight.
	slots chan struct{}
}

var _ datastore.Store = (*Store)(nil)

// Open reads the credentials and prepares a connection. Nothing is sent before
// the first call.
func Open(_ context.Context, options Options) (*Store, error) {
	connection, err := open(options)
	if err != nil {
		return nil, unavailable(datastore.Refused, "connecting to the Kubernetes API server", err)
	}
	prefix := options.InterfacePrefix
	if prefix == "" {
		prefix = workload.DefaultInterfacePrefix
	}
	return &Store{
		current: &current{options: options, connection: connection},
		groups:  groupChoice{group: options.Group},
		kept:    newKeepsake(),
		prefix:  prefix,
		rate:    newLimiter(options),
		slots:   make(chan struct{}, inFlight),
	}, nil
}

// Credentials names the file that the credentials come from and tells when
// they end: zero if they do not say.
func (s *Store) Credentials() (file string, ends time.Time) {
	conn := s.current.get()
	return conn.file, conn.ends
}

// Transactional implements datastore.Store: it is not.
func (s *Store) Transactional() bool { return false }

// Close implements datastore.Store.
func (s *Store) Close() error {
	s.current.get().transport.CloseIdleConnections()
	return nil
}

// revision holds what a guarded write needs: an object made anew under a name
// has another identity, not only another version.
func revision(resourceVersion, uid string) datastore.Revision {
	return datastore.Revision(resourceVersion + "@" + uid)
}

func splitRevision(r datastore.Revision) (resourceVersion, uid string) {
	resourceVersion, uid, _ = strings.Cut(string(r), "@")
	return resourceVersion, uid
}

// together runs do for 0 to count-1 at once.
func together(count int, do func(i int)) {
	if count == 1 {
		do(0)
		return
	}
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

// groupChoice is the group in use, asked for once if it was not given.
type groupChoice struct {
	mu    sync.Mutex
	group model.APIGroup
}
