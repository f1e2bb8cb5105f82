package session

import (
	"context"
	"fmt"
	"hash/fnv"
	"time"

	"calico-cni/pkg/hostlock"
)

// An API server refuses what one user asks in too great a number ("API priority
// and fairness"), and the plugins of all nodes are one user to it. So of the
// processes that a host starts at once no more than readers read their batches
// at the same time; one that waits for longer than readTime goes on.
const (
	readers  = 8
	readTime = 5 * time.Second
)

// Reading takes one of the host's turns to read a batch from an API server, and
// returns what ends it. Other datastores need no turns.
func (s *Session) Reading(ctx context.Context) (done func()) {
	if s.Store.Transactional() {
		return func() {}
	}
	hash := fnv.New32a()
	hash.Write([]byte(s.Call.ContainerID))
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	turn, err := hostlock.Acquire(ctx, fmt.Sprintf("%s.read%d", s.Conf.IPAMLockFile, hash.Sum32()%readers))
	if err != nil {
		s.Log.Info("reading out of turn", "error", err)
	}
	return turn.Release
}
