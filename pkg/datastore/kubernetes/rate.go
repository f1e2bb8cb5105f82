package kubernetes

import (
	"context"
	"fmt"

	"golang.org/x/time/rate"
)

// limiter holds this client to a rate of its own (datastore contract 1.2),
// however much the server would take.
type limiter struct{ bucket *rate.Limiter }

func newLimiter(o Options) limiter {
	if o.QPS <= 0 {
		return limiter{rate.NewLimiter(rate.Inf, 0)}
	}
	return limiter{rate.NewLimiter(rate.Limit(o.QPS), max(1, o.Burst))}
}

// Unlimit ends the limits of this client: what grows with the content of the
// datastore would not come to its end under limits made for one pod. GC sends
// three or four requests a container. When a node with 110 pods starts again
// the usual rate would make that more than a minute, all under the IPAM lock
// that the pods need which come back; with 200 pods it would be the deadline.
func (s *Store) Unlimit() { s.rate.bucket.SetLimit(rate.Inf) }

// wait lets a request pass as soon as the rate allows. It fails at once if that
// is after the deadline.
func (l limiter) wait(ctx context.Context) error {
	err := l.bucket.Wait(ctx)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("this client allows itself %v requests a second after the first %d, which leaves no time for this one: raise qps and burst (K8S_CLIENT_QPS, K8S_CLIENT_BURST)",
		l.bucket.Limit(), l.bucket.Burst())
}
