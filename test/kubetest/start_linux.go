package kubetest

import "testing"

// Start runs a cluster for one test, with these manifests applied as they are.
func Start(t testing.TB, manifests ...string) *Cluster {
	t.Helper()
	c, err := Launch(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	for _, manifest := range manifests {
		if err := c.Apply(manifest); err != nil {
			t.Fatal(err)
		}
	}
	return c
}
