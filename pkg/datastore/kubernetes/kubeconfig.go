package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kubeconfig is what is read of a file in which Kubernetes' clients keep
// servers and credentials.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Clusters       []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	} `yaml:"users"`
	Contexts []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
}

type cluster struct {
	Server        string `yaml:"server"`
	CAFile        string `yaml:"certificate-authority"`
	CAData        string `yaml:"certificate-authority-data"`
	SkipVerify    bool   `yaml:"insecure-skip-tls-verify"`
	TLSServerName string `yaml:"tls-server-name"`
	ProxyURL      string `yaml:"proxy-url"`
}

type user struct {
	CertFile  string `yaml:"client-certificate"`
	CertData  string `yaml:"client-certificate-data"`
	KeyFile   string `yaml:"client-key"`
	KeyData   string `yaml:"client-key-data"`
	Token     string `yaml:"token"`
	TokenFile string `yaml:"tokenFile"`
	Username  string `yaml:"username"`
	Password  string `yaml:"password"`
	Exec      any    `yaml:"exec"`
	Provider  any    `yaml:"auth-provider"`
}

// chosen is the cluster and the user of one context, and the file that named
// the user.
type chosen struct {
	cluster cluster
	user    user
	file    string
}

// readKubeconfig reads the files of a list and picks a context. Of several
// files those that do not exist are passed over; the first to name a thing
// wins.
func readKubeconfig(list, context string) (chosen, error) {
	paths := filepath.SplitList(list)
	var files []kubeconfig
	var read []string
	for _, path := range paths {
		config, err := parseKubeconfig(path)
		if errors.Is(err, fs.ErrNotExist) && len(paths) > 1 {
			continue
		}
		if err != nil {
			return chosen{}, err
		}
		files, read = append(files, config), append(read, path)
	}
	if len(files) == 0 {
		return chosen{}, fmt.Errorf("none of the kubeconfig files %s exists", list)
	}
	return choose(files, read, context)
}

// parseKubeconfig does not repeat what the parser says: it quotes the text.
func parseKubeconfig(path string) (kubeconfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return kubeconfig{}, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	var config kubeconfig
	if err := yaml.Unmarshal(text, &config); err != nil {
		return kubeconfig{}, fmt.Errorf("%s is not a kubeconfig: it does not parse; perhaps it is being written", describeFile(path))
	}
	directory := filepath.Dir(path)
	for i := range config.Clusters {
		absolute(directory, &config.Clusters[i].Cluster.CAFile)
	}
	for i := range config.Users {
		u := &config.Users[i].User
		absolute(directory, &u.CertFile, &u.KeyFile, &u.TokenFile)
	}
	return config, nil
}

// absolute: paths in a kubeconfig are relative to it.
func absolute(directory string, paths ...*string) {
	for _, path := range paths {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(directory, *path)
		}
	}
}

func choose(files []kubeconfig, paths []string, context string) (chosen, error) {
	for _, file := range files {
		if context == "" {
			context = file.CurrentContext
		}
	}
	all := strings.Join(paths, ", ")
	if context == "" {
		return chosen{}, fmt.Errorf("kubeconfig %s has no current-context", all)
	}
	clusterName, userName, ok := findContext(files, context)
	if !ok {
		return chosen{}, fmt.Errorf("kubeconfig %s has no context %q", all, context)
	}
	var out chosen
	if out.cluster, ok = findCluster(files, clusterName); !ok || out.cluster.Server == "" {
		return chosen{}, fmt.Errorf("kubeconfig %s: context %q: no server for cluster %q", all, context, clusterName)
	}
	if out.user, out.file, ok = findUser(files, paths, userName); !ok && userName != "" {
		return chosen{}, fmt.Errorf("kubeconfig %s: context %q: no user %q", all, context, userName)
	}
	if out.user.Exec != nil || out.user.Provider != nil {
		return chosen{}, fmt.Errorf("%s: user %q gets its credentials from a program: write a token, a token file or a client certificate instead", describeFile(out.file), userName)
	}
	return out, nil
}

func findContext(files []kubeconfig, name string) (cluster, user string, ok bool) {
	for _, file := range files {
		for _, entry := range file.Contexts {
			if entry.Name == name {
				return entry.Context.Cluster, entry.Context.User, true
			}
		}
	}
	return "", "", false
}

func findCluster(files []kubeconfig, name string) (cluster, bool) {
	for _, file := range files {
		for _, entry := range file.Clusters {
			if entry.Name == name {
				return entry.Cluster, true
			}
		}
	}
	return cluster{}, false
}

func findUser(files []kubeconfig, paths []string, name string) (user, string, bool) {
	for i, file := range files {
		for _, entry := range file.Users {
			if entry.Name == name {
				return entry.User, paths[i], true
			}
		}
	}
	return user{}, paths[0], false
}
