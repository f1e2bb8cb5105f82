package invocation

import (
	"io"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"calico-cni/pkg/cnierr"
	"calico-cni/pkg/workload"
)

// Verb is a command of the CNI specification.
type Verb string

// The verbs that are dispatched. VERSION is answered by Run itself.
const (
	Add    Verb = "ADD"
	Check  Verb = "CHECK"
	Del    Verb = "DEL"
	Status Verb = "STATUS"
	GC     Verb = "GC"

	versionVerb Verb = "VERSION"
)

// Call is what the runtime asked for.
type Call struct {
	Verb        Verb
	ContainerID string
	Netns       string
	IfName      string
	// Args is CNI_ARGS with IgnoreUnknown=1 in front.
	Args string
	// Path is CNI_PATH, the search path of plugins.
	Path string
	// NetnsOverride allows the plugin's own namespace as Netns.
	NetnsOverride bool
	Stdin         []byte
	// Deliver hands the result of ADD to whoever called, in the version of the
	// configuration. It is ADD's last step: if it fails, ADD can still take
	// everything back.
	Deliver func(types.Result) error
}

// variable says which verbs need an environment variable and how its value is
// checked. A variable that a verb does not need is not looked at, except that
// the optional ones of ADD, CHECK and DEL are taken.
type variable struct {
	name     string
	required []Verb
	value    *string
	validate func(string) error
}

func (c *Call) variables() []variable {
	attachment := []Verb{Add, Check, Del}
	return []variable{
		{"CNI_CONTAINERID", attachment, &c.ContainerID, workload.ValidateContainerID},
		{"CNI_NETNS", []Verb{Add, Check}, &c.Netns, nil},
		{"CNI_IFNAME", attachment, &c.IfName, workload.ValidateIfName},
		{"CNI_PATH", []Verb{Add, Check, Del, Status, GC}, &c.Path, nil},
	}
}

// errNoCommand means that no runtime called: somebody started the plugin by
// hand.
var errNoCommand = cnierr.New(cnierr.InvalidEnvironment, "CNI_COMMAND is not set")

// parse reads the environment. What is missing is named all at once.
func parse(getenv func(string) string) (*Call, error) {
	call := &Call{Verb: Verb(getenv("CNI_COMMAND"))}
	switch call.Verb {
	case Add, Check, Del, Status, GC, versionVerb:
	case "":
		return nil, errNoCommand
	default:
		return nil, cnierr.New(cnierr.InvalidEnvironment,
			"CNI_COMMAND is %q; known are ADD, CHECK, DEL, GC, STATUS and VERSION", call.Verb)
	}
	if err := call.take(getenv); err != nil {
		return nil, err
	}
	if !call.hasAttachment() {
		return call, nil
	}
	call.Netns = getenv("CNI_NETNS")
	call.Args = workload.PrependIgnoreUnknown(getenv("CNI_ARGS"))
	override := getenv("CNI_NETNS_OVERRIDE")
	call.NetnsOverride = override == "1" || strings.EqualFold(override, "true")
	return call, nil
}

func (c *Call) hasAttachment() bool { return c.Verb == Add || c.Verb == Check || c.Verb == Del }

func (c *Call) take(getenv func(string) string) error {
	var missing []string
	for _, v := range c.variables() {
		if !slices.Contains(v.required, c.Verb) {
			continue
		}
		*v.value = getenv(v.name)
		if *v.value == "" {
			missing = append(missing, v.name)
		}
	}
	if len(missing) > 0 {
		return cnierr.New(cnierr.InvalidEnvironment, "%s needs the environment variables [%s], which are missing or empty",
			c.Verb, strings.Join(missing, ","))
	}
	for _, v := range c.variables() {
		if *v.value == "" || v.validate == nil {
			continue
		}
		if err := v.validate(*v.value); err != nil {
			return err
		}
	}
	return nil
}

func readStdin(stdin io.Reader) ([]byte, error) {
	document, err := io.ReadAll(stdin)
	if err != nil {
		return nil, cnierr.New(cnierr.InputOutput, "reading the network configuration from stdin: %w", err)
	}
	return document, nil
}

// Environ is the environment of a plugin executed for this call: inherited,
// with the call's own variables.
func (c *Call) Environ(inherited []string) []string {
	override := ""
	if c.NetnsOverride {
		override = "1"
	}
	own := [][2]string{
		{"CNI_COMMAND", string(c.Verb)}, {"CNI_CONTAINERID", c.ContainerID}, {"CNI_NETNS", c.Netns},
		{"CNI_IFNAME", c.IfName}, {"CNI_ARGS", c.Args}, {"CNI_PATH", c.Path}, {"CNI_NETNS_OVERRIDE", override},
	}
	environ := make([]string, 0, len(inherited)+len(own))
	for _, pair := range inherited {
		name, _, _ := strings.Cut(pair, "=")
		if !slices.ContainsFunc(own, func(v [2]string) bool { return v[0] == name }) {
			environ = append(environ, pair)
		}
	}
	for _, v := range own {
		if v[1] != "" {
			environ = append(environ, v[0]+"="+v[1])
		}
	}
	return environ
}
