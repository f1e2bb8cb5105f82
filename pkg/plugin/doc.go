// Package plugin is the network plugin's verbs: it reads what a decision
// needs, has addresses taken, has the data plane connect the pod, and records
// the endpoint; and it takes all of that back.
//
// It knows data planes only through pkg/dataplane and the IPAM plugin only
// through its verbs. It touches neither the environment nor stdout.
package plugin
