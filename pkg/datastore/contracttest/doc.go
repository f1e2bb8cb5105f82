// Package contracttest is the suite that every engine must pass: what
// datastore.Store promises, as tests.
//
// It may import pkg/model, pkg/datastore and testing. It knows no engine.
package contracttest
