// Package installer puts the plugins and their configuration onto a node, and
// keeps their credentials fresh (network plugin contract 11). What to do is
// decided by functions of values: Settings, the rendered template, the plan of
// copies, the time of renewal; Run carries it out.
//
// It may import the configuration's package and the API server's, and nothing
// that serves a CNI verb. It must never leave half a file where a runtime or a
// plugin looks, and never print a rendered configuration: it may hold secrets.
package installer
