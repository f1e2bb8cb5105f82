package kubetest

import (
	"fmt"
	"strings"
)

// Options say what a cluster has beyond the usual one, which serves its
// administrator on loopback.
type Options struct {
	// Address is what the server listens on, for nodes to reach it.
	Address string
	// Users are known beside the administrator.
	Users []User
	// Accounts makes pods run under service accounts, which somebody must make.
	Accounts bool
}

// User is somebody that the server knows by a token.
type User struct {
	Token, Name string
	Groups      []string
}

func (c *Cluster) address() string {
	if c.options.Address == "" {
		return "127.0.0.1"
	}
	return c.options.Address
}

// tokens is the file that the server knows its users by.
func (o Options) tokens() []byte {
	var file strings.Builder
	for _, u := range append(o.Users, User{AdminToken, "admin", []string{"system:masters"}}) {
		fmt.Fprintf(&file, "%s,%s,%s,%q\n", u.Token, u.Name, u.Name, strings.Join(u.Groups, ","))
	}
	return []byte(file.String())
}

func (o Options) arguments() []string {
	if o.Accounts {
		return nil
	}
	return []string{"--disable-admission-plugins=ServiceAccount"}
}

// Launch runs a cluster until Close: for those that have no test to end it.
func Launch(options Options) (*Cluster, error) {
	c, err := start(options)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return nil, err
	}
	return c, nil
}
