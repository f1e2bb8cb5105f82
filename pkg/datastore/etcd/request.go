package etcd

import (
	"context"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/stats"
)

// firstPatience is how long a read waits for one of several servers before it
// asks another.
const firstPatience = 5 * time.Second

// request is one transaction RPC.
type request struct {
	compare   []clientv3.Cmp
	then      []clientv3.Op
	otherwise []clientv3.Op
}

func (r request) writes() bool {
	for _, operation := range r.then {
		if !operation.IsGet() {
			return true
		}
	}
	return false
}

// do sends a request. doing says for messages what it is about.
func (s *Store) do(ctx context.Context, doing string, r request) (*clientv3.TxnResponse, error) {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, sent, err := s.attempt(ctx, s.patience(r), r)
	if err != nil && ctx.Err() == nil && (s.login.expired(err) || sent && !r.writes() && passing(err)) {
		response, sent, err = s.attempt(ctx, requestTimeout, r)
	}
	if err != nil {
		return nil, s.failure(doing, time.Since(started), sent && r.writes(), err)
	}
	return response, nil
}

func (s *Store) patience(r request) time.Duration {
	if len(s.endpoints) > 1 && !r.writes() {
		return firstPatience
	}
	return requestTimeout
}

// attempt sends a request once. sent tells whether it left this process; if
// not, no server can have acted on it.
func (s *Store) attempt(ctx context.Context, patience time.Duration, r request) (_ *clientv3.TxnResponse, sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if ctx.Err() != nil {
		return nil, false, context.Cause(ctx)
	}
	authenticated, err := s.login.attach(ctx)
	if err != nil {
		return nil, false, clientv3.ContextError(ctx, err)
	}
	var mark atomic.Bool
	txn := s.kv.Txn(context.WithValue(authenticated, sentMark{}, &mark))
	response, err := txn.If(r.compare...).Then(r.then...).Else(r.otherwise...).Commit()
	return response, mark.Load(), rpctypes.Error(err)
}

// sentMark is the context key of the *atomic.Bool that sentRecorder sets.
type sentMark struct{}

// sentRecorder notes which requests were handed to a connection.
type sentRecorder struct{}

func (sentRecorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentRecorder) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, out := event.(*stats.OutPayload); !out {
		return
	}
	if mark, ok := ctx.Value(sentMark{}).(*atomic.Bool); ok {
		mark.Store(true)
	}
}

func (sentRecorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sentRecorder) HandleConn(context.Context, stats.ConnStats) {}
