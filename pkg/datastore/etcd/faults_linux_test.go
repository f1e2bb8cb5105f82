package etcd

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
	"calico-cni/test/etcdtest"
)

var (
	handleKey = model.HandleKey{ID: "net.3f9c"}
	getHandle = datastore.Get{Key: handleKey}
	putHandle = datastore.Step{datastore.Put(handleKey, &model.Handle{}, datastore.Absent)}
)

// prompt is how long a call may take whose outcome is clear at once.
const prompt = 3 * time.Second

// failover is how long a call may take while a server is dead. It is a few
// milliseconds; the rest is for machines under load.
const failover = 2 * time.Second

// demand checks why a call failed, and that it says where.
func demand(t *testing.T, err error, reason datastore.Reason, texts ...string) {
	t.Helper()
	if !errors.Is(err, datastore.ErrUnavailable) || datastore.ReasonOf(err) != reason {
		t.Fatalf("failed with reason %d: %v; want reason %d", datastore.ReasonOf(err), err, reason)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q does not say %q", err, text)
		}
	}
}

// takes checks that do ends in time.
func takes(t *testing.T, limit time.Duration, do func()) {
	t.Helper()
	started := time.Now()
	do()
	if took := time.Since(started); took > limit {
		t.Errorf("took %v, limit %v", took, limit)
	}
}

func mustRead(t *testing.T, store datastore.Store) {
	t.Helper()
	if _, err := store.Read(within(t, time.Minute), getHandle); err != nil {
		t.Fatal(err)
	}
}

// refusingAddress is one that nothing listens on.
func refusingAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return "http://" + listener.Addr().String()
}

// silentAddress accepts connections, and never answers.
func silentAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return "http://" + listener.Addr().String()
}

func TestAllRefuse(t *testing.T) {
	t.Parallel()
	endpoints := []string{refusingAddress(t), refusingAddress(t)}
	store := openStore(t, Options{Endpoints: endpoints})
	takes(t, prompt, func() {
		_, err := store.Read(within(t, time.Minute), getHandle)
		demand(t, err, datastore.Unreachable, "connection refused", "after", endpoints[0], endpoints[1])
		_, err = store.Write(within(t, time.Minute), putHandle)
		demand(t, err, datastore.Unreachable, "connection refused")
	})
}

func TestRefusedLogin(t *testing.T) {
	t.Parallel()
	store := openStore(t, Options{Endpoints: []string{refusingAddress(t)}, Username: "cni", Password: "secret"})
	takes(t, prompt, func() {
		_, err := store.Read(within(t, time.Minute), getHandle)
		demand(t, err, datastore.Unreachable, "connection refused")
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is in %q", err)
		}
	})
}

func TestSilent(t *testing.T) {
	t.Parallel()
	store := openStore(t, Options{Endpoints: []string{silentAddress(t)}})
	takes(t, prompt, func() {
		_, err := store.Read(within(t, 300*time.Millisecond), getHandle)
		demand(t, err, datastore.Unreachable, "after", "127.0.0.1")
		_, err = store.Write(within(t, 300*time.Millisecond), putHandle)
		demand(t, err, datastore.Unreachable) // it was never sent
	})
}

// TestSilentTimeout waits for the limit of one request, which is shorter than
// the caller's deadline.
func TestSilentTimeout(t *testing.T) {
	t.Parallel()
	store := openStore(t, Options{Endpoints: []string{silentAddress(t)}})
	takes(t, requestTimeout+prompt, func() {
		_, err := store.Read(within(t, time.Minute), getHandle)
		demand(t, err, datastore.Unreachable)
	})
}

func TestOneAnswers(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Options{})
	for name, dead := range map[string]func(*testing.T) string{"refusing": refusingAddress, "silent": silentAddress} {
		t.Run(name, func(t *testing.T) {
			store := openStore(t, Options{Endpoints: []string{dead(t), server.Endpoint, dead(t)}})
			takes(t, failover, func() { mustRead(t, store) })
			takes(t, failover, func() {
				remove := datastore.Step{datastore.Remove(handleKey, datastore.Any)}
				if _, err := store.Write(within(t, time.Minute), remove); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestPaused has a server that stops answering on an open connection.
func TestPaused(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Options{})
	store := openStore(t, Options{Endpoints: []string{server.Endpoint}})
	mustRead(t, store)
	server.Pause(t)
	takes(t, prompt, func() {
		_, err := store.Read(within(t, 300*time.Millisecond), getHandle)
		demand(t, err, datastore.Unreachable)
		_, err = store.Write(within(t, 300*time.Millisecond), putHandle)
		demand(t, err, datastore.OutcomeUnknown, server.Endpoint, "not known")
	})
	server.Resume(t)
	mustRead(t, store)
}

func TestSlow(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Options{})
	store := openStore(t, Options{Endpoints: []string{server.Endpoint}})
	mustRead(t, store)
	server.Pause(t)
	resume := time.AfterFunc(500*time.Millisecond, func() { server.Resume(t) })
	defer resume.Stop()
	if _, err := store.Write(within(t, time.Minute), putHandle); err != nil {
		t.Error(err)
	}
}

// TestDiesDuringWrite has a server that takes a write and dies.
func TestDiesDuringWrite(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Options{})
	store := openStore(t, Options{Endpoints: []string{server.Endpoint}})
	mustRead(t, store)
	server.Pause(t)
	stop := time.AfterFunc(200*time.Millisecond, server.Stop)
	defer stop.Stop()
	takes(t, prompt, func() {
		_, err := store.Write(within(t, time.Minute), putHandle)
		demand(t, err, datastore.OutcomeUnknown, server.Endpoint)
	})
}

func TestRestarted(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Options{})
	store := openStore(t, Options{Endpoints: []string{server.Endpoint}})
	written, err := store.Write(within(t, time.Minute), putHandle)
	if err != nil {
		t.Fatal(err)
	}
	server.Stop()
	_, err = store.Read(within(t, time.Minute), getHandle)
	demand(t, err, datastore.Unreachable)
	server.Restart(t)
	// The connection comes back by itself, within the backoff.
	takes(t, prompt, func() {
		for {
			answers, err := store.Read(within(t, time.Minute), getHandle)
			if err == nil {
				if _, revision := datastore.One[model.Handle](answers[0]); revision != written[handleKey] {
					t.Errorf("revision %q after the restart, want %q", revision, written[handleKey])
				}
				return
			}
			demand(t, err, datastore.Unreachable)
		}
	})
}

// TestFull has a server whose quota is used up: it serves reads.
func TestFull(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, etcdtest.Options{Full: true})
	store := openStore(t, Options{Endpoints: []string{server.Endpoint}})
	_, err := store.Write(within(t, time.Minute), putHandle)
	demand(t, err, datastore.Unreachable, "database space exceeded")
	mustRead(t, store)
}

func TestThreeServersOneDead(t *testing.T) {
	t.Parallel()
	servers := etcdtest.StartCluster(t, 3)
	var endpoints []string
	for _, server := range servers {
		endpoints = append(endpoints, server.Endpoint)
	}
	connected := openStore(t, Options{Endpoints: endpoints})
	mustRead(t, connected)
	for _, dead := range servers {
		dead.Stop()
		// The election of a new leader is the servers' affair; then all is as
		// before for those who were connected and those who connect now.
		settle(t, connected)
		fresh := openStore(t, Options{Endpoints: endpoints})
		for _, store := range []*Store{connected, fresh} {
			takes(t, failover, func() { mustRead(t, store) })
			takes(t, failover, func() {
				if _, err := store.Write(within(t, time.Minute), datastore.Step{datastore.Remove(handleKey, datastore.Any)}); err != nil {
					t.Error(err)
				}
			})
		}
		dead.Restart(t)
	}
}

// TestThreeServersOnePaused reads over connections of which one is silent.
func TestThreeServersOnePaused(t *testing.T) {
	t.Parallel()
	servers := etcdtest.StartCluster(t, 3)
	store := openStore(t, Options{Endpoints: []string{servers[0].Endpoint, servers[1].Endpoint, servers[2].Endpoint}})
	for _, server := range servers { // until every connection is in use
		for before := server.Calls(t)["Txn"]; server.Calls(t)["Txn"] == before; {
			mustRead(t, store)
		}
	}
	servers[0].Pause(t)
	settle(t, openStore(t, Options{Endpoints: []string{servers[1].Endpoint, servers[2].Endpoint}}))
	for range servers { // they take turns
		takes(t, firstPatience+failover, func() { mustRead(t, store) })
	}
}

// settle waits until the cluster has a leader.
func settle(t *testing.T, store *Store) {
	t.Helper()
	ctx := within(t, time.Minute)
	for {
		_, err := store.Write(ctx, datastore.Step{datastore.Remove(handleKey, datastore.Any)})
		if err == nil {
			return
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
}
