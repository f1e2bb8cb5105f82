package installer

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"strconv"
	"strings"
	"time"
)

// Settings is what the environment asks for (network plugin contract 11), with
// every default filled in.
type Settings struct {
	// Template is the text of a template; TemplateFile wins over it, and if
	// both are empty it is the built-in one.
	Template, TemplateFile string
	// ConfName is the configuration's file name, OldConfName one to remove.
	ConfName, OldConfName string
	// ConfMode is the mode of the configuration.
	ConfMode fs.FileMode
	// NetDir is the folder of the configuration as the host knows it.
	NetDir string
	// TLSDir holds the files for etcd.
	TLSDir string
	// Update allows to overwrite plugins; Skip names those not to copy.
	Update bool
	Skip   []string
	// Sleep keeps the installer running, to renew what ends.
	Sleep bool
	// Server is the URL of the API server; empty: the environment names none.
	Server        string
	SkipTLSVerify bool
	// Account is the service account whose token the plugins get.
	Account string
	// Refresh replaces the computed time between renewals, if it isn't 0.
	Refresh time.Duration
	// values are the values of placeholders that come from the environment.
	values values
	// Warnings are about values that are accepted and perhaps not meant.
	Warnings []string
}

// Host is what the settings depend on beside the environment.
type Host struct {
	// GOOS is the operating system that is installed on.
	GOOS string
	// Name is the host's name.
	Name string
	// DSR reports whether Windows can return a service's answers directly.
	DSR bool
	// NetDir overrides the default of CNI_NET_DIR, if it isn't empty.
	NetDir string
}

// ReadSettings reads the environment. It reports all mistakes at once.
func ReadSettings(getenv func(string) string, host Host) (Settings, error) {
	e := &environment{getenv: getenv}
	s := Settings{
		Template:     e.text("CNI_NETWORK_CONFIG", ""),
		TemplateFile: e.text("CNI_NETWORK_CONFIG_FILE", ""),
		ConfName:     e.fileName("CNI_CONF_NAME", "10-calico.conflist"),
		ConfMode:     e.mode("TEST_FILE_PERMISSION", 0o600),
		NetDir:       netDir(e, host),
		TLSDir:       e.text("TLS_ASSETS_DIR", "/calico-secrets"),
		Update:       e.boolean("UPDATE_CNI_BINARIES", true),
		Skip:         e.list("SKIP_CNI_BINARIES", ""),
		Sleep:        e.boolean("SLEEP", true),
		Account:      e.text("CALICO_CNI_SERVICE_ACCOUNT", "calico-cni-plugin"),
		Refresh:      e.duration("CNI_TOKEN_REFRESH_INTERVAL"),
		Server: serverURL(e.choice("KUBERNETES_SERVICE_PROTOCOL", "https", "http"),
			e.text("KUBERNETES_SERVICE_HOST", ""), e.text("KUBERNETES_SERVICE_PORT", "")),
		SkipTLSVerify: e.boolean("SKIP_TLS_VERIFY", false),
	}
	s.OldConfName = e.fileName("CNI_OLD_CONF_NAME", "10-calico.conflist")
	s.values = templateValues(e, host)
	s.Warnings = e.warnings
	return s, errors.Join(e.mistakes...)
}

// netDir adds the drive that a path on Windows needs to be one.
func netDir(e *environment, host Host) string {
	dir := e.text("CNI_NET_DIR", host.NetDir)
	if dir == "" {
		dir = "/etc/cni/net.d"
	}
	if host.GOOS == "windows" && (dir[0] == '/' || dir[0] == '\\') {
		dir = "c:" + dir
	}
	return strings.TrimRight(dir, `/\`)
}

func serverURL(protocol, host, port string) string {
	if host == "" {
		return ""
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if port == "" {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return protocol + "://" + host
	}
	return protocol + "://" + net.JoinHostPort(host, port)
}

// environment reads variables and collects what is wrong with them. An empty
// variable counts as absent.
type environment struct {
	getenv   func(string) string
	mistakes []error
	warnings []string
}

func (e *environment) wrong(name, format string, args ...any) {
	e.mistakes = append(e.mistakes, fmt.Errorf("environment variable %s: %w", name, fmt.Errorf(format, args...)))
}

func (e *environment) text(name, otherwise string) string {
	if value := strings.TrimSpace(e.getenv(name)); value != "" {
		return value
	}
	return otherwise
}

// choice is one of some values, in lower case; the first is the default.
func (e *environment) choice(name string, allowed ...string) string {
	value := strings.ToLower(e.text(name, allowed[0]))
	for _, one := range allowed {
		if value == one {
			return value
		}
	}
	e.wrong(name, "%q is not known: use one of %s", value, strings.Join(allowed, ", "))
	return allowed[0]
}

func (e *environment) boolean(name string, otherwise bool) bool {
	text := e.text(name, strconv.FormatBool(otherwise))
	value, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		e.wrong(name, "%q is neither true nor false", text)
		return otherwise
	}
	return value
}

func (e *environment) number(name string, otherwise, least, most int) int {
	text := e.text(name, strconv.Itoa(otherwise))
	value, err := strconv.Atoi(text)
	switch {
	case err != nil:
		e.wrong(name, "%q is not a number", text)
	case value < least || value > most:
		e.wrong(name, "%d is not in the range from %d to %d", value, least, most)
	default:
		return value
	}
	return otherwise
}

func (e *environment) list(name, otherwise string) []string {
	var out []string
	for item := range strings.SplitSeq(e.text(name, otherwise), ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// fileName is a name within a folder of ours: a path would lead out of it.
func (e *environment) fileName(name, otherwise string) string {
	value := e.text(name, otherwise)
	if strings.ContainsAny(value, `/\`) || value == "." || value == ".." {
		e.wrong(name, "%q is not a file name: write it without a folder", value)
		return otherwise
	}
	return value
}

// mode is in octal. A file that its owner cannot read is of no use.
func (e *environment) mode(name string, otherwise fs.FileMode) fs.FileMode {
	text := e.text(name, strconv.FormatUint(uint64(otherwise), 8))
	value, err := strconv.ParseUint(text, 8, 32)
	if err != nil || value > 0o777 || value&0o400 == 0 {
		e.wrong(name, "%q is not a file mode that lets the owner read: write it in octal, like 600", text)
		return otherwise
	}
	return fs.FileMode(value)
}

// duration is positive, or 0 if the variable isn't set.
func (e *environment) duration(name string) time.Duration {
	text := e.text(name, "")
	if text == "" {
		return 0
	}
	value, err := time.ParseDuration(text)
	if err != nil || value <= 0 {
		e.wrong(name, "%q is not a positive duration: write it like 30m or 1h30m", text)
		return 0
	}
	return value
}

const anyNumber = math.MaxInt32
