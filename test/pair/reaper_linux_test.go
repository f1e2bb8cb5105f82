package pair

import (
	"encoding/binary"
	"io"
	"net"
	"os/exec"
	"sync"
	"testing"
)

// reaper stands between a plugin and an etcd server and kills the plugin at one
// of its requests: before the server sees it, or when it is done and not
// answered yet.
type reaper struct {
	*proxy

	mutex    sync.Mutex
	seen, at int
	after    bool
	victim   *exec.Cmd
	killed   bool
}

// newReaper listens on the host.
func (h *host) newReaper(t *testing.T, target string) *reaper {
	t.Helper()
	r := &reaper{proxy: &proxy{target: target}}
	h.network.Do(t, func() {
		var err error
		if r.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatalf("listening on the host: %v", err)
		}
	})
	go func() {
		for {
			client, err := r.listener.Accept()
			if err != nil {
				return
			}
			r.keep(client)
			go r.watch(client)
		}
	}()
	t.Cleanup(r.close)
	return r
}

// An HTTP/2 connection begins with a preface; a frame has a header of length,
// type, flags and stream, and one of type HEADERS begins a request, and its
// answer (RFC 9113, 3.4, 4.1 and 6.2).
const (
	prefaceLength     = 24
	frameHeaderLength = 9
	frameHeaders      = 1
)

// watch carries one connection, frame by frame.
func (r *reaper) watch(client net.Conn) {
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		client.Close()
		return
	}
	r.keep(server)
	requests := map[uint32]int{}
	var mutex sync.Mutex
	go func() {
		defer client.Close()
		frames(client, server, func(kind byte, stream uint32) bool {
			mutex.Lock()
			defer mutex.Unlock()
			number, known := requests[stream]
			return kind != frameHeaders || !known || !r.kills(number, true)
		})
	}()
	defer server.Close()
	if _, err := io.CopyN(server, client, prefaceLength); err != nil {
		return
	}
	frames(server, client, func(kind byte, stream uint32) bool {
		if kind != frameHeaders {
			return true
		}
		mutex.Lock()
		defer mutex.Unlock()
		requests[stream] = r.next()
		return !r.kills(requests[stream], false)
	})
}

// frames passes frames on for as long as pass says so.
func frames(to io.Writer, from io.Reader, pass func(kind byte, stream uint32) bool) {
	for {
		header := make([]byte, frameHeaderLength)
		if _, err := io.ReadFull(from, header); err != nil {
			return
		}
		payload := make([]byte, int(header[0])<<16|int(header[1])<<8|int(header[2]))
		if _, err := io.ReadFull(from, payload); err != nil {
			return
		}
		if !pass(header[3], binary.BigEndian.Uint32(header[5:])) {
			return
		}
		if _, err := to.Write(append(header, payload...)); err != nil {
			return
		}
	}
}

// next numbers a request.
func (r *reaper) next() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.seen++
	return r.seen - 1
}

// kills kills the victim if its time has come, and waits for its end: nothing
// that it sends or is sent arrives any more.
func (r *reaper) kills(number int, after bool) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.victim == nil || number != r.at || after != r.after {
		return r.killed
	}
	_ = r.victim.Process.Kill() // it is there: it waits for this answer
	r.killed = true
	return true
}

// killAt runs a call that is killed at a request. It reports false if the call
// has no such request, and ends by itself.
func (r *reaper) killAt(t *testing.T, h *host, c call, at int, after bool) bool {
	t.Helper()
	r.mutex.Lock()
	p := h.start(t, c)
	r.seen, r.at, r.after, r.victim, r.killed = 0, at, after, p.cmd, false
	r.mutex.Unlock()
	err := p.cmd.Wait()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.victim = nil
	if !r.killed && err != nil {
		t.Fatalf("%s fails by itself: %v\n%s", c.verb, err, p.stderr.String())
	}
	killed := r.killed
	r.killed = false
	return killed
}
