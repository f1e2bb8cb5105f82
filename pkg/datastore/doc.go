// Package datastore is the contract of the plugins with whatever holds the
// cluster's data: two verbs, Read and Write, and four errors.
//
// It may import pkg/model. Its subpackages etcd, embedded, kubernetes and memory
// implement Store; all of them pass the suite in contracttest. It decides
// nothing about addresses or endpoints.
package datastore
