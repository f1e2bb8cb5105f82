package kubetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

// collections are the paths of the kinds of objects that manifests hold.
var collections = map[string]string{
	"Namespace":                "/api/v1/namespaces",
	"ServiceAccount":           "/api/v1/namespaces/%s/serviceaccounts",
	"ConfigMap":                "/api/v1/namespaces/%s/configmaps",
	"DaemonSet":                "/apis/apps/v1/namespaces/%s/daemonsets",
	"Role":                     "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles",
	"RoleBinding":              "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
	"ClusterRole":              "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"ClusterRoleBinding":       "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}

// Apply creates the objects of a manifest of the module, as they are, and
// waits until the kinds that they define are served.
func (c *Cluster) Apply(manifest string) error { return each(manifest, c.create) }

// Check asks the server whether it would take the objects of a manifest, each
// member of which it must know. Nothing is stored.
func (c *Cluster) Check(manifest string) error {
	return each(manifest, func(object map[string]any) error {
		path, err := collection(object)
		if err != nil {
			return err
		}
		_, err = c.admin.Try(http.MethodPost, path+"?dryRun=All&fieldValidation=Strict", object)
		var answer *AnswerError
		if errors.As(err, &answer) && answer.Status == http.StatusConflict {
			return nil // it exists, and was validated before
		}
		return err
	})
}

// ApplyText is Apply for a manifest's text.
func (c *Cluster) ApplyText(text []byte) error { return eachOf(text, c.create) }

// each calls do for the objects of a manifest of the module, until it fails.
func each(manifest string, do func(object map[string]any) error) error {
	root, err := Root()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, manifest))
	if err != nil {
		return err
	}
	if err := eachOf(text, do); err != nil {
		return fmt.Errorf("%s: %w", manifest, err)
	}
	return nil
}

func eachOf(text []byte, do func(object map[string]any) error) error {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var object map[string]any
		err := documents.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(object); err != nil {
			return err
		}
	}
}

// collection is the path under which an object is created.
func collection(object map[string]any) (string, error) {
	kind, _ := object["kind"].(string)
	path, ok := collections[kind]
	if !ok {
		return "", fmt.Errorf("where to create a %q is not known", kind)
	}
	if strings.Contains(path, "%s") {
		metadata, _ := object["metadata"].(map[string]any)
		path = fmt.Sprintf(path, metadata["namespace"])
	}
	return path, nil
}

func (c *Cluster) create(object map[string]any) error {
	kind, _ := object["kind"].(string)
	metadata, _ := object["metadata"].(map[string]any)
	path, err := collection(object)
	if err != nil {
		return err
	}
	_, err = c.admin.Try(http.MethodPost, path, object)
	var answer *AnswerError
	if errors.As(err, &answer) && answer.Status == http.StatusConflict {
		err = nil // it exists
	}
	if err != nil {
		return fmt.Errorf("%s %v: %w", kind, metadata["name"], err)
	}
	if kind == "CustomResourceDefinition" {
		return c.served(object)
	}
	return nil
}

// served waits until a newly defined kind can be listed: right after its
// definition the server knows nothing of it, or is still preparing to store it.
func (c *Cluster) served(definition map[string]any) error {
	spec, _ := definition["spec"].(map[string]any)
	names, _ := spec["names"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	version, _ := versions[0].(map[string]any)
	path := fmt.Sprintf("/apis/%s/%s/%s", spec["group"], version["name"], names["plural"])
	var err error
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(askAgain) {
		if _, err = c.admin.Try(http.MethodGet, path, nil); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s is not served after %v: %w", path, startTimeout, err)
}

// Wipe deletes all objects under paths like /apis/group/version/plural.
func (c *Cluster) Wipe(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if _, err := c.admin.Try(http.MethodDelete, path, nil); err != nil {
			t.Fatalf("wiping %s: %v", path, err)
		}
	}
}
