package linux

import (
	"context"
	"testing"
)

// BenchmarkAddDelete measures one pod's ADD and DEL; most of it is the kernel
// waiting for packets in flight while it deletes the link.
func BenchmarkAddDelete(b *testing.B) {
	n, pod := newNode(b), newPlace(b)
	req, r := request(pod, "c1", dualStack), removal(pod, "c1")
	n.do(func() {
		ctx := context.Background()
		for b.Loop() {
			if _, err := n.d.Add(ctx, req); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := n.d.Delete(ctx, r); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}
