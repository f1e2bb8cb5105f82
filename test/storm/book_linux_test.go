package storm

import (
	"fmt"
	"testing"

	"calico-cni/test/netns"
)

// state is what a runtime knows of an attachment.
type state string

const (
	absent state = "absent" // never added, or deleted
	live   state = "live"   // added, and nothing since may have harmed it
	doubt  state = "doubt"  // killed, failed, or replaced by a newer sandbox
)

// attachment is one interface of a container.
type attachment struct {
	state state
	// added is what ADD printed, if the attachment is live.
	added outcome
	// address is the result in short.
	result result
}

// sandbox is a network namespace, which successive containers may share.
type sandbox struct {
	network *netns.Namespace
	gone    bool
}

// container is what a runtime adds interfaces to.
type container struct {
	id string
	// pod is empty outside Kubernetes.
	pod     string
	sandbox *sandbox
	adds    int
	// killed: an ADD of it was.
	killed bool
	// attachments by interface name.
	attachments map[string]*attachment
}

func (c *container) attachment(ifName string) *attachment {
	if c.attachments[ifName] == nil {
		c.attachments[ifName] = &attachment{state: absent}
	}
	return c.attachments[ifName]
}

// in reports whether an interface of the container is in a state.
func (c *container) in(s state) bool {
	for _, a := range c.attachments {
		if a.state == s {
			return true
		}
	}
	return false
}

// lose puts what was live in doubt.
func (c *container) lose() {
	for _, a := range c.attachments {
		if a.state == live {
			a.state = doubt
		}
	}
}

func (c *container) call(verb, ifName string, conf config) call {
	made := call{verb: verb, conf: conf, container: c.id, ifName: ifName, netns: c.sandbox.network.Path()}
	if c.pod != "" {
		made.args = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + c.pod + ";K8S_POD_INFRA_CONTAINER_ID=" + c.id
	}
	return made
}

// book is what a container runtime knows on one host.
type book struct {
	host       *host
	containers []*container
}

// newContainer books a container in a sandbox of its own, unless it is to
// share another one's.
func (b *book) newContainer(t *testing.T, pod string, shared *sandbox) *container {
	t.Helper()
	if shared == nil {
		shared = &sandbox{network: netns.New(t)}
	}
	// The first eleven characters name the host interface outside Kubernetes.
	c := &container{
		id: fmt.Sprintf("c%04dx%08d", len(b.containers), len(b.containers)), pod: pod, sandbox: shared,
		attachments: map[string]*attachment{},
	}
	b.containers = append(b.containers, c)
	return c
}

// removeSandbox destroys a container's namespace, with whatever is in it.
func (b *book) removeSandbox(t *testing.T, s *sandbox) {
	t.Helper()
	if s.gone {
		return
	}
	s.network.Remove(t)
	s.gone = true
	for _, c := range b.containers {
		if c.sandbox == s {
			c.lose()
		}
	}
}

// valid is the list of attachments that a GC must leave alone.
func (b *book) valid() []map[string]string {
	list := []map[string]string{}
	for _, c := range b.containers {
		for ifName, a := range c.attachments {
			if a.state == live {
				list = append(list, map[string]string{"containerID": c.id, "ifname": ifName})
			}
		}
	}
	return list
}

// learn enters the outcome of an ADD, a DEL or a GC.
func (b *book) learn(what action, o outcome) error {
	switch what.verb {
	case "ADD":
		return b.learnAdd(what, o)
	case "DEL":
		a := what.container.attachment(what.ifName)
		a.state = absent
		if o.killed || o.failure.Code != 0 {
			a.state = doubt
		}
	case "GC":
		if o.killed || o.failure.Code != 0 {
			return nil
		}
		for _, c := range b.containers {
			for _, a := range c.attachments {
				if a.state == doubt {
					a.state = absent
				}
			}
		}
	}
	return nil
}

func (b *book) learnAdd(what action, o outcome) error {
	c := what.container
	c.adds++
	c.killed = c.killed || o.killed
	for _, other := range b.containers {
		if other != c && other.pod != "" && other.pod == c.pod {
			other.lose()
		}
	}
	a := c.attachment(what.ifName)
	if o.killed || o.failure.Code != 0 {
		a.state = doubt
		return nil
	}
	parsed, err := o.parse()
	if err != nil {
		return err
	}
	if parsed.Interfaces[1].Name != what.ifName {
		// Outside Kubernetes an ADD for a further interface returns what is
		// recorded and makes nothing (network plugin contract 6.3).
		return nil
	}
	*a = attachment{state: live, added: o, result: parsed}
	return nil
}
