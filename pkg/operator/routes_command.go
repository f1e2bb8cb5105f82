package operator

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"calico-cni/pkg/datastore"
)

// The forms in which routes are printed.
const (
	formIP         = "ip"
	formPowerShell = "powershell"
	formJSON       = "json"
)

// routesOptions are the flags of routes.
type routesOptions struct {
	node     string
	all      bool
	form     string
	protocol string
	config   string
}

func parseRoutes(p Process) (routesOptions, error) {
	var o routesOptions
	form := formIP
	if p.GOOS == "windows" {
		form = formPowerShell
	}
	set := newFlags(p, "routes")
	set.StringVar(&o.node, "node", "", "the node that needs the routes; default: this one")
	set.BoolVar(&o.all, "all", false, "the routes of every node")
	set.StringVar(&o.form, "o", form, "ip, powershell or json")
	set.StringVar(&o.protocol, "protocol", "", "mark the routes, for ip, as of this protocol, so that they can be told from others")
	set.StringVar(&o.config, "config", "", "network configuration that names the datastore")
	if err := parseFlags(set, p); err != nil {
		return o, err
	}
	switch {
	case !slices.Contains([]string{formIP, formPowerShell, formJSON}, o.form):
		return o, fmt.Errorf("-o %s: use ip, powershell or json", o.form)
	case o.all && o.node != "":
		return o, fmt.Errorf("--node=%s and --all: use one of them", o.node)
	case o.protocol != "" && o.form != formIP:
		return o, fmt.Errorf("--protocol=%s: only -o ip has protocols", o.protocol)
	case strings.Trim(o.protocol, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "":
		return o, fmt.Errorf("--protocol=%s: use a number from 5 to 255 or a name of /etc/iproute2/rt_protos", o.protocol)
	}
	return o, nil
}

func printRoutes(w io.Writer, found allRoutes, o routesOptions) error {
	if o.form == formJSON {
		return printJSON(w, found)
	}
	var out strings.Builder
	for _, node := range found.Nodes {
		if o.all {
			fmt.Fprintf(&out, "# on node %q\n", node.Node)
		}
		for _, r := range node.Routes {
			out.WriteString(r.command(o) + "\n")
		}
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// command sets the route, whether it is there already or not, until the host's
// next boot.
func (r route) command(o routesOptions) string {
	if o.form == formPowerShell {
		return fmt.Sprintf("Remove-NetRoute -DestinationPrefix %[1]s -PolicyStore ActiveStore -Confirm:$false -ErrorAction SilentlyContinue; "+
			"New-NetRoute -DestinationPrefix %[1]s -NextHop %[2]s -InterfaceIndex @(Find-NetRoute -RemoteIPAddress %[2]s)[0].InterfaceIndex -PolicyStore ActiveStore",
			r.Destination, r.Via)
	}
	command := fmt.Sprintf("ip route replace %s via %s", r.Destination, r.Via)
	if o.protocol != "" {
		command += " proto " + o.protocol
	}
	return command
}

// showRoutes prints the routes that nodes need to reach each other's pods where
// no routing agent runs.
func showRoutes(ctx context.Context, p Process, o routesOptions) (int, error) {
	node, connection, err := open(ctx, p, o.config)
	if err != nil {
		return 0, err
	}
	defer connection.Store.Close()
	if o.node != "" {
		node = o.node
	}
	if o.all {
		node = ""
	}
	found, err := routesOf(ctx, connection.Store, node)
	if err != nil {
		return 0, err
	}
	for _, problem := range found.Problems {
		fmt.Fprintln(p.Stderr, problem)
	}
	exit := exitFine
	if len(found.Problems) > 0 {
		exit = exitProblems
	}
	return exit, printRoutes(p.Stdout, found, o)
}

// routesOf are the routes of a node; of all nodes if it is empty.
func routesOf(ctx context.Context, store datastore.Store, node string) (allRoutes, error) {
	n, err := readNetwork(ctx, store, node)
	if err != nil {
		return allRoutes{}, err
	}
	if node == "" {
		return n.all(slices.Sorted(maps.Keys(n.nodes))), nil
	}
	if n.nodes[node] == nil {
		return allRoutes{}, fmt.Errorf("node %s does not exist; name one with --node", node)
	}
	return n.all([]string{node}), nil
}
