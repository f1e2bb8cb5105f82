package plugin

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/invocation"
)

func TestGates(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	status := atomic.Int32{}
	status.Store(http.StatusOK)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(server.Close)
	for _, code := range []int{http.StatusOK, http.StatusNotModified} {
		status.Store(int32(code))
		asked.Store(0)
		n := newNode(t)
		if _, err := n.runAdd(n.call(invocation.Add, n.config("readiness_gates", []string{server.URL}))); err != nil || asked.Load() != 1 {
			t.Errorf("Network/13 status %d: asked %d times, %v", code, asked.Load(), err)
		}
	}
}

// answers is a transport that answers with one status after another, the last
// one for ever.
type answers []int

func (a *answers) RoundTrip(request *http.Request) (*http.Response, error) {
	status := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Body: http.NoBody, Request: request}, nil
}

func TestGateTiming(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		row     string
		answers answers
		code    cnierr.Code
		wait    time.Duration
	}{
		{"Network/13 503 fails after 30 s", answers{503}, cnierr.TryAgainLater, 30 * time.Second},
		{"Network/13 ready at the first probe costs no wait", answers{200}, 0, 0},
		{"Network/13 ready at the third", answers{503, 404, 304}, 0, 10 * time.Second},
	} {
		t.Run(test.row, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := awaitGate(context.Background(), &http.Client{Transport: &test.answers}, "http://gate.test/ready")
				if waited := time.Since(start); waited != test.wait {
					t.Errorf("waited %v, want %v", waited, test.wait)
				}
				if test.code != 0 {
					wantCode(t, err, test.code, "http://gate.test/ready", "Service Unavailable")
				} else if err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// silence is a transport that answers with 503 as often as it says, and then
// not at all.
type silence int

func (s *silence) RoundTrip(request *http.Request) (*http.Response, error) {
	if *s--; *s >= 0 {
		return (&answers{503}).RoundTrip(request)
	}
	<-request.Context().Done()
	return nil, request.Context().Err()
}

func TestGateNamesItsLastAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answered := silence(2)
		client := &http.Client{Transport: &answered}
		// The third question is still open when the wait ends.
		ctx, cancel := context.WithTimeout(context.Background(), 12*time.Second)
		defer cancel()
		wantCode(t, awaitGate(ctx, client, "http://gate.test/ready"), cnierr.TryAgainLater, "Service Unavailable")
	})
}
