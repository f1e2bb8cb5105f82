package storm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// action is one call that the storm makes, and what it does around it.
type action struct {
	verb      string
	container *container
	ifName    string
	// netns is how DEL finds the namespace.
	netns     netnsChoice
	killAfter time.Duration
}

type netnsChoice string

const (
	withNetns    netnsChoice = ""
	withoutNetns netnsChoice = "without netns"
	removedNetns netnsChoice = "after its netns was removed"
)

func (a action) String() string {
	text := a.verb
	if a.container != nil {
		text += fmt.Sprintf(" %s %s", a.container.id, a.ifName)
		if a.container.pod != "" {
			text += " (pod " + a.container.pod + ")"
		}
	}
	if a.netns != withNetns {
		text += " " + string(a.netns)
	}
	if a.killAfter > 0 {
		text += fmt.Sprintf(", kill -9 after %v", a.killAfter)
	}
	return text
}

// planner draws batches of actions that a runtime may carry out at once.
type planner struct {
	*book
	random *rand.Rand
	// busy are the containers of the batch being drawn; adding its pods.
	busy   map[*container]bool
	adding map[string]bool
}

// pods is how many pods of Kubernetes there are; a small number makes for many
// successions.
const pods = 5

// batch draws the next actions. A GC is always alone: by the CNI rule nothing
// else runs on the node then.
func (p *planner) batch(t *testing.T) []action {
	t.Helper()
	if p.random.IntN(12) == 0 {
		return []action{{verb: "GC", killAfter: p.kill(8)}}
	}
	p.busy, p.adding = map[*container]bool{}, map[string]bool{}
	var actions []action
	for wanted := 1 + p.random.IntN(4); len(actions) < wanted; {
		actions = append(actions, p.draw(t)...)
	}
	if p.host.etcd != nil && p.random.IntN(8) == 0 {
		actions = append(actions, action{verb: crash, killAfter: p.kill(1)})
	}
	return actions
}

// crash is the action of killing the etcd server and starting it again.
const crash = "crash of etcd"

func (p *planner) draw(t *testing.T) []action {
	t.Helper()
	switch roll := p.random.IntN(100); {
	case roll < 30:
		return p.addNew(t)
	case roll < 45:
		return p.addAgain()
	case roll < 75:
		return p.del(t)
	case roll < 92:
		return p.check()
	}
	return []action{{verb: "STATUS"}}
}

// addNew starts a container; one of a pod replaces its last sandbox, now and
// then in the same namespace.
func (p *planner) addNew(t *testing.T) []action {
	t.Helper()
	pod := fmt.Sprintf("web-%d", p.random.IntN(pods))
	if p.random.IntN(3) == 0 {
		pod = ""
	}
	if p.adding[pod] {
		return nil
	}
	var shared *sandbox
	if last := p.lastOf(pod); last != nil && (p.busy[last] || p.random.IntN(4) == 0) && !last.sandbox.gone {
		shared = last.sandbox
	}
	c := p.newContainer(t, pod, shared)
	return p.add(c, "eth0")
}

// lastOf is the newest container of a pod.
func (p *planner) lastOf(pod string) *container {
	var last *container
	for _, c := range p.containers {
		if pod != "" && c.pod == pod {
			last = c
		}
	}
	return last
}

// addAgain repeats an ADD, or adds a second interface.
func (p *planner) addAgain() []action {
	c := p.pick(func(c *container) bool {
		return !p.adding[c.pod] && !c.sandbox.gone && (c.in(live) || c.in(doubt)) && (c.pod == "" || p.lastOf(c.pod) == c)
	})
	if c == nil {
		return nil
	}
	return p.add(c, [...]string{"eth0", "net1"}[p.random.IntN(2)])
}

func (p *planner) add(c *container, ifName string) []action {
	p.busy[c] = true
	if c.pod != "" {
		p.adding[c.pod] = true
	}
	return []action{{verb: "ADD", container: c, ifName: ifName, killAfter: p.kill(4)}}
}

// del takes an interface away, whether it is there or not; now and then two
// processes do so at once.
func (p *planner) del(t *testing.T) []action {
	t.Helper()
	c := p.pick(func(*container) bool { return true })
	if c == nil {
		return nil
	}
	p.busy[c] = true
	a := action{verb: "DEL", container: c, ifName: "eth0", killAfter: p.kill(4)}
	if c.attachment("net1").state != absent && p.random.IntN(2) == 0 || p.random.IntN(10) == 0 {
		a.ifName = "net1"
	}
	switch p.random.IntN(6) {
	case 0:
		a.netns = withoutNetns
	case 1:
		if p.alone(c) {
			p.removeSandbox(t, c.sandbox)
			a.netns = removedNetns
		}
	}
	if p.random.IntN(5) == 0 {
		twin := a
		twin.killAfter = p.kill(4)
		return []action{a, twin}
	}
	return []action{a}
}

// alone reports whether nobody else uses the container's namespace.
func (p *planner) alone(c *container) bool {
	if c.sandbox.gone {
		return false
	}
	for _, other := range p.containers {
		if other != c && other.sandbox == c.sandbox {
			return false
		}
	}
	return true
}

func (p *planner) check() []action {
	c := p.pick(func(c *container) bool { return c.in(live) && !p.adding[c.pod] })
	if c == nil {
		return nil
	}
	p.busy[c] = true
	if c.pod != "" {
		p.adding[c.pod] = true
	}
	for _, ifName := range []string{"net1", "eth0"} {
		if c.attachment(ifName).state == live {
			return []action{{verb: "CHECK", container: c, ifName: ifName}}
		}
	}
	return nil
}

// pick draws one of the idle containers for which fits holds, most often one
// of the youngest.
func (p *planner) pick(fits func(*container) bool) *container {
	var candidates []*container
	for _, c := range p.containers {
		if !p.busy[c] && fits(c) {
			candidates = append(candidates, c)
		}
	}
	if len(candidates) == 0 {
		return nil
	}
	recent := min(len(candidates), 12)
	return candidates[len(candidates)-1-p.random.IntN(recent)]
}

// longestLife is a little more than a call takes on a busy machine.
const longestLife = 90 * time.Millisecond

// kill draws the moment of a kill -9 for one call in so many.
func (p *planner) kill(oneIn int) time.Duration {
	if p.random.IntN(oneIn) != 0 {
		return 0
	}
	return time.Duration(1+p.random.IntN(int(longestLife/time.Microsecond))) * time.Microsecond
}
