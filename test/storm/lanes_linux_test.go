package storm

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"calico-cni/test/netns"
)

// callsVariable is how many calls of ADD and DEL the lanes make together.
const callsVariable = "STORM_CALLS"

const (
	lanes = 6
	// held is how many containers a lane has at most.
	held = 4
)

// disturbance goes on beside the lanes until they are done.
type disturbance func(t *testing.T, h *host, random *rand.Rand, v *view)

// view is what the lanes and a disturbance know of each other.
type view struct {
	// away is held while the datastore is kept away, so that those who are to
	// call again can wait for the end of that.
	away sync.RWMutex
	// succeeded gets a token for a call, unless there are many; done is closed
	// when the lanes have ended.
	succeeded, done chan struct{}
	// times counts the disturbances.
	times int
}

func newView() *view {
	return &view{succeeded: make(chan struct{}, 4*lanes), done: make(chan struct{})}
}

// success is told by a lane.
func (v *view) success() {
	select {
	case v.succeeded <- struct{}{}:
	default:
	}
}

// calm waits until a drawn number of calls has succeeded: on a slow machine the
// disturbances are rarer. It reports false when the lanes have ended.
func (v *view) calm(random *rand.Rand) bool {
	for len(v.succeeded) > 0 {
		<-v.succeeded // before the end of the last disturbance
	}
	for range lanes + random.IntN(2*lanes) {
		select {
		case <-v.succeeded:
		case <-v.done:
			return false
		}
	}
	v.times++
	return true
}

// last lets a disturbance last for a drawn time.
func (v *view) last(random *rand.Rand, longest time.Duration) {
	select {
	case <-v.done:
	case <-time.After(time.Duration(random.Int64N(int64(longest)))):
	}
}

// TestLeases has containers come and go in parallel, some of the calls killed,
// and checks that an address belongs to one container at a time: with both
// datastores, while etcd stops and is restarted, and while a member of a
// cluster is cut off.
func TestLeases(t *testing.T) {
	t.Parallel()
	rounds, seed := number(t, roundsVariable, 1), seedOf(t)
	for round := range rounds {
		for name, scene := range map[string]func(t *testing.T) (*host, disturbance){
			embedded: func(t *testing.T) (*host, disturbance) { return newHostOf(t, embedded), nil },
			etcd:     func(t *testing.T) (*host, disturbance) { return newHostOf(t, etcd), nil },
			"etcd is stopped and restarted": func(t *testing.T) (*host, disturbance) {
				return newHostOf(t, etcd), stopAndRestart
			},
			"a member of etcd is cut off": func(t *testing.T) (*host, disturbance) {
				h := newHost(t)
				return h, h.onMembers(t).cutOffInTurn
			},
		} {
			t.Run(fmt.Sprintf("%s %d", name, round), func(t *testing.T) {
				if rounds == 1 {
					t.Parallel()
				}
				h, disturb := scene(t)
				drive(t, h, seed+round, disturb)
			})
		}
	}
}

// seedOf is the seed of the first round, the same every time unless there are
// many or it is given.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	otherwise := uint64(1)
	if number(t, roundsVariable, 1) > 1 {
		otherwise = uint64(time.Now().UnixNano())
	}
	return number(t, seedVariable, otherwise)
}

// drive runs all lanes, and then looks at what is left.
func drive(t *testing.T, h *host, seed uint64, disturb disturbance) {
	t.Helper()
	t.Logf("%s=%d", seedVariable, seed)
	calls := int(number(t, callsVariable, 60))
	all := make([]*lane, lanes)
	var group, beside sync.WaitGroup
	v := newView()
	for i := range all {
		all[i] = &lane{number: i, host: h, random: rand.New(rand.NewPCG(seed, uint64(i))), disturbed: disturb != nil, view: v}
		group.Go(func() { all[i].run(t, calls/lanes) })
	}
	if disturb != nil {
		beside.Go(func() { disturb(t, h, rand.New(rand.NewPCG(seed, lanes)), v) })
	}
	group.Wait()
	close(v.done)
	beside.Wait()
	var history leases
	killed := 0
	for _, l := range all {
		l.empty(t)
		history = append(history, l.history...)
		killed += l.killed
	}
	history.check(t)
	h.nothingLeft(t)
	t.Logf("%s: %d leases, %d calls killed, %d disturbances", t.Name(), len(history), killed, v.times)
	if disturb != nil && v.times == 0 {
		t.Error("nothing has disturbed the calls")
	}
	if len(history) < lanes {
		t.Errorf("only %d leases in %d calls", len(history), calls)
	}
	if t.Failed() {
		for _, l := range all {
			t.Logf("lane %d:\n%s", l.number, strings.Join(l.log, "\n"))
		}
	}
}

// lane is a part of the node's containers that come and go one after the other.
type lane struct {
	number    int
	host      *host
	random    *rand.Rand
	disturbed bool
	view      *view

	made, killed int
	containers   []*tenant
	history      leases
	log          []string
}

// tenant is a container with the addresses that an ADD has told.
type tenant struct {
	*container
	addresses []string
}

func (l *lane) run(t *testing.T, calls int) {
	t.Helper()
	for range calls {
		full := len(l.containers) == held
		if len(l.containers) == 0 || !full && l.random.IntN(2) == 0 {
			l.add(t)
			continue
		}
		at := l.random.IntN(len(l.containers))
		leaving := l.containers[at]
		l.containers = append(l.containers[:at], l.containers[at+1:]...)
		l.remove(t, leaving)
	}
}

// empty takes away what the lane still has.
func (l *lane) empty(t *testing.T) {
	t.Helper()
	for _, c := range l.containers {
		l.remove(t, c)
	}
	l.containers = nil
}

// add starts a container, of a pod of its own. What a failed or killed ADD has
// taken nobody knows; its DEL gives it back.
func (l *lane) add(t *testing.T) {
	t.Helper()
	l.made++
	c := &tenant{container: &container{
		id:  fmt.Sprintf("l%02dn%04dxxx%08d", l.number, l.made, l.made),
		pod: fmt.Sprintf("web-%d-%d", l.number, l.made), sandbox: &sandbox{network: netns.New(t)},
	}}
	l.containers = append(l.containers, c)
	begin, o := l.call(t, "ADD", c, l.kill())
	if o.killed || o.failure.Code != 0 {
		return
	}
	parsed, err := o.parse()
	if err != nil {
		t.Error(err)
		return
	}
	c.addresses = parsed.addresses()
	for _, address := range c.addresses {
		l.history.enter(l.number, lease{address, c.id, false}, begin, begin.Add(o.took))
	}
}

// mostDeletes is how often a runtime calls DEL until it succeeds.
const mostDeletes = 200

// remove calls DEL until it succeeds, as a runtime does.
func (l *lane) remove(t *testing.T, c *tenant) {
	t.Helper()
	first, killAfter := time.Time{}, l.kill()
	for range mostDeletes {
		begin, o := l.call(t, "DEL", c, killAfter)
		if killAfter = 0; first.IsZero() {
			first = begin
		}
		if o.killed || o.failure.Code != 0 {
			continue
		}
		for _, address := range c.addresses {
			l.history.enter(l.number, lease{address, c.id, true}, first, begin.Add(o.took))
		}
		c.sandbox.network.Remove(t)
		return
	}
	t.Errorf("DEL of %s does not succeed", c.id)
}

// call makes one call and demands that it only fails if the datastore is away.
func (l *lane) call(t *testing.T, verb string, c *tenant, killAfter time.Duration) (time.Time, outcome) {
	t.Helper()
	made := c.call(verb, "eth0", l.host.conf)
	made.killAfter = killAfter
	begin := time.Now()
	o, err := l.host.execute(t, made)
	l.log = append(l.log, fmt.Sprintf("%s %s: %v (%v)", verb, c.id, o, o.took.Round(time.Millisecond)))
	if o.killed {
		l.killed++
	}
	switch {
	case o.failure.Code == tryAgain:
		l.wait()
	case o.failure.Code == 0 && !o.killed:
		l.view.success()
	}
	if err != nil || o.failure.Code != 0 && !(l.disturbed && o.failure.Code == tryAgain) {
		t.Errorf("%s %s: it %v %v\n%s", verb, c.id, o, err, o.stderr)
	}
	return begin, o
}

// wait waits until the datastore is not kept away.
func (l *lane) wait() {
	l.view.away.RLock()
	defer l.view.away.RUnlock()
}

// kill draws the moment of a kill -9 for one call in four.
func (l *lane) kill() time.Duration {
	if l.random.IntN(4) != 0 {
		return 0
	}
	return time.Duration(1+l.random.IntN(int(longestLife/time.Microsecond))) * time.Microsecond
}

// stopAndRestart stops the server's process, or kills it and starts it again on
// its data.
func stopAndRestart(t *testing.T, h *host, random *rand.Rand, v *view) {
	for v.calm(random) {
		v.away.Lock()
		if random.IntN(2) == 0 {
			h.etcd.Pause(t)
			v.last(random, 300*time.Millisecond)
			h.etcd.Resume(t)
		} else {
			h.etcd.Stop()
			v.last(random, 100*time.Millisecond)
			h.etcd.Restart(t)
		}
		v.away.Unlock()
	}
}

// cutOffInTurn cuts one member after the other off, the leader too. The others
// go on.
func (m *members) cutOffInTurn(t *testing.T, _ *host, random *rand.Rand, v *view) {
	for v.calm(random) {
		member := random.IntN(memberCount)
		m.cutOff(t, member)
		v.last(random, time.Second)
		m.bringBack(t, member)
	}
}
