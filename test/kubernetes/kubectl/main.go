// Command kubectl is a stand-in for Kubernetes' own: it knows those forms that
// the documents use and the API calls that these make, so that the documents'
// commands run against a real API server without building the real one.
//
// Server, token and certificate authority are in the variables KUBECTL_SERVER,
// KUBECTL_TOKEN and KUBECTL_CA. It serves tests only.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// collections are the paths of kinds, and by other names of them.
var collections = map[string]string{
	"Pod":                      "/api/v1/namespaces/%s/pods",
	"Namespace":                "/api/v1/namespaces",
	"ServiceAccount":           "/api/v1/namespaces/%s/serviceaccounts",
	"ConfigMap":                "/api/v1/namespaces/%s/configmaps",
	"DaemonSet":                "/apis/apps/v1/namespaces/%s/daemonsets",
	"Role":                     "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles",
	"RoleBinding":              "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
	"ClusterRole":              "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"ClusterRoleBinding":       "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	"IPPool":                   "/apis/crd.projectcalico.org/v1/ippools",
	"ClusterInformation":       "/apis/crd.projectcalico.org/v1/clusterinformations",
}

const (
	plain     = "application/json"
	applied   = "application/apply-patch+yaml"
	merged    = "application/merge-patch+json"
	strategic = "application/strategic-merge-patch+json"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl stand-in:", err)
		os.Exit(1)
	}
}

// run takes the namespace out of the arguments, and the files.
func run(args []string) error {
	namespace := "default"
	var files, words []string
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-n", "-f", "-l":
			if i++; i == len(args) {
				return fmt.Errorf("%s needs a value", args[i-1])
			}
			switch args[i-1] {
			case "-n":
				namespace = args[i]
			case "-f":
				files = append(files, args[i])
			case "-l":
				words = append(words, args[i])
			}
		default:
			words = append(words, args[i])
		}
	}
	form := strings.Join(words[:min(2, len(words))], " ")
	switch {
	case form == "apply", form == "delete", form == "wait --for=condition=Established":
		return each(files, func(object map[string]any) error { return treat(words[0], object) })
	case form == "create namespace" && len(words) == 3:
		return send(http.MethodPost, "/api/v1/namespaces", plain, map[string]any{"metadata": map[string]any{"name": words[2]}}, nil)
	case form == "annotate namespace" && len(words) == 4:
		key, value, _ := strings.Cut(words[3], "=")
		return patch("/api/v1/namespaces/"+words[2], merged, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	case form == "get pods" && len(words) == 3:
		var list struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		return send(http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods?labelSelector="+words[2], plain, nil, &list)
	case form == "set env" && len(words) == 4:
		return setEnv(namespace, words[2], words[3])
	case form == "rollout restart" && len(words) == 3:
		return template(namespace, words[2], map[string]any{"metadata": map[string]any{"annotations": map[string]any{
			"kubectl.kubernetes.io/restartedAt": time.Now().Format(time.RFC3339)}}})
	}
	return fmt.Errorf("this form is not known: %q", args)
}

// each calls do for the objects of files; "-" is stdin.
func each(files []string, do func(map[string]any) error) error {
	if len(files) == 0 {
		return errors.New("no file")
	}
	for _, file := range files {
		text, err := io.ReadAll(os.Stdin)
		if file != "-" {
			text, err = os.ReadFile(file)
		}
		if err != nil {
			return err
		}
		documents := yaml.NewDecoder(bytes.NewReader(text))
		for {
			var object map[string]any
			err := documents.Decode(&object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if err := do(object); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

func treat(verb string, object map[string]any) error {
	metadata, _ := object["metadata"].(map[string]any)
	path, ok := collections[fmt.Sprint(object["kind"])]
	if !ok {
		return fmt.Errorf("kind %v is not known", object["kind"])
	}
	if strings.Contains(path, "%s") {
		path = fmt.Sprintf(path, metadata["namespace"])
	}
	path += "/" + fmt.Sprint(metadata["name"])
	switch verb {
	case "apply":
		return patch(path+"?fieldManager=kubectl&force=true&fieldValidation=Strict", applied, object)
	case "delete":
		return send(http.MethodDelete, path, plain, map[string]any{}, nil)
	}
	return established(path)
}

func established(path string) error {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		var definition struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		if err := send(http.MethodGet, path, plain, nil, &definition); err != nil {
			return err
		}
		if slices.Contains(definition.Status.Conditions, struct{ Type, Status string }{"Established", "True"}) {
			return nil
		}
	}
	return fmt.Errorf("%s: not established within 30 s", path)
}

func setEnv(namespace, name, assignment string) error {
	variable, value, _ := strings.Cut(assignment, "=")
	return template(namespace, name, map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": "install", "env": []any{map[string]any{"name": variable, "value": value}}},
	}}})
}

// template changes the template of a DaemonSet's pods.
func template(namespace, name string, change map[string]any) error {
	kind, name, _ := strings.Cut(name, "/")
	if kind != "daemonset" {
		return fmt.Errorf("kind %s is not known", kind)
	}
	return patch(fmt.Sprintf(collections["DaemonSet"], namespace)+"/"+name, strategic, map[string]any{"spec": map[string]any{"template": change}})
}

func patch(path, contentType string, body any) error {
	return send(http.MethodPatch, path, contentType, body, nil)
}

func send(method, path, contentType string, body, answer any) error {
	authority, err := os.ReadFile(os.Getenv("KUBECTL_CA"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	encoded, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, os.Getenv("KUBECTL_SERVER")+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("KUBECTL_TOKEN"))
	request.Header.Set("Content-Type", contentType)
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: HTTP %d: %s", method, path, response.StatusCode, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
