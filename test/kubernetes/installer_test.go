//go:build kubernetes && linux

package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"calico-cni/pkg/datastore/kubernetes"
	"calico-cni/pkg/model"
	"calico-cni/test/kubetest"
)

// installerManifests are what docs/install.md applies for the installer.
var installerManifests = []string{"deploy/installer-rbac.yaml", "deploy/configmap.yaml", "deploy/daemonset.yaml"}

// repository is the root of the module, seen from this package.
const repository = "../.."

// daemonSet is what kubelet would look at.
type daemonSet struct {
	Spec struct {
		Template struct {
			Spec struct {
				ServiceAccountName string
				Containers         []struct {
					Command []string
					Env     []struct {
						Name, Value string
						ValueFrom   struct {
							FieldRef struct{ FieldPath string }
						}
					}
					VolumeMounts []struct {
						Name, MountPath string
						ReadOnly        bool
					}
				}
				Volumes []struct {
					Name      string
					HostPath  struct{ Path string }
					ConfigMap struct{ Name string }
				}
			}
		}
	}
}

// installerNode is a node on which the DaemonSet's pod runs, without kubelet:
// its container gets what the object in the API server says.
type installerNode struct {
	*testing.T
	set     daemonSet
	host    string
	account string
	image   string
	// env is added to the container's.
	env []string
}

func newInstallerNode(t *testing.T) *installerNode {
	t.Helper()
	for _, manifest := range installerManifests {
		if err := cluster.Apply(manifest); err != nil {
			t.Fatal(err)
		}
	}
	n := emptyNode(t, filepath.Join(t.TempDir(), "image"))
	build := exec.Command("scripts/image", n.image, "bin")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	n.look()
	return n
}

func emptyNode(t *testing.T, image string) *installerNode {
	t.Helper()
	return &installerNode{T: t, host: t.TempDir(), account: t.TempDir(), image: image}
}

// look reads what the API server says now.
func (n *installerNode) look() {
	n.Helper()
	object := cluster.Admin().Do(n, "GET", "/apis/apps/v1/namespaces/kube-system/daemonsets/calico-cni", nil)
	text, err := json.Marshal(object)
	n.set = daemonSet{}
	if err == nil {
		err = json.Unmarshal(text, &n.set)
	}
	if err != nil {
		n.Fatal(err)
	}
	n.project(cluster.AccountToken(n, "kube-system", n.set.Spec.Template.Spec.ServiceAccountName))
}

// project puts the pod's credentials where kubelet does.
func (n *installerNode) project(token string) {
	n.Helper()
	authority, err := os.ReadFile(cluster.CAFile)
	if err != nil {
		n.Fatal(err)
	}
	for name, body := range map[string]string{"ca.crt": string(authority), "namespace": "kube-system", "token": token} {
		path := filepath.Join(n.account, name)
		if err := os.WriteFile(path+".new", []byte(body), 0o600); err != nil {
			n.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			n.Fatal(err)
		}
	}
}

// start runs the pod's container.
func (n *installerNode) start() (command *exec.Cmd, said *bytes.Buffer) {
	n.Helper()
	pod := n.set.Spec.Template.Spec
	container := pod.Containers[0]
	script := []string{
		"set -euo pipefail", "root=" + n.TempDir(), "mount -t tmpfs image $root", "cp -a " + n.image + "/. $root",
		"mount_at() { mkdir -p $root$2; mount --bind $1 $root$2; }",
		"mount_at " + n.account + " /var/run/secrets/kubernetes.io/serviceaccount",
	}
	for _, mount := range container.VolumeMounts {
		script = append(script, "mount_at "+n.volume(mount.Name)+" "+mount.MountPath)
	}
	script = append(script, "mount -o remount,ro $root", "exec chroot $root "+strings.Join(container.Command, " "))
	command = exec.CommandContext(n.Context(), "unshare", "--mount", "--propagation", "private", "bash", "-c", strings.Join(script, "\n"))
	address := strings.TrimPrefix(cluster.URL, "https://")
	host, port, _ := strings.Cut(address, ":")
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port}
	for _, variable := range container.Env {
		if variable.ValueFrom.FieldRef.FieldPath == "spec.nodeName" {
			variable.Value = "worker-b"
		}
		command.Env = append(command.Env, variable.Name+"="+variable.Value)
	}
	command.Env = append(command.Env, n.env...)
	said = &bytes.Buffer{}
	command.Stderr = said
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		n.Fatal(err)
	}
	return command, said
}

// volume is the folder behind one of the pod's volumes.
func (n *installerNode) volume(name string) string {
	n.Helper()
	for _, volume := range n.set.Spec.Template.Spec.Volumes {
		if volume.Name != name {
			continue
		}
		if volume.HostPath.Path != "" {
			path := filepath.Join(n.host, volume.HostPath.Path)
			if err := os.MkdirAll(path, 0o755); err != nil {
				n.Fatal(err)
			}
			return path
		}
		folder := n.TempDir()
		object := cluster.Admin().Do(n, "GET", "/api/v1/namespaces/kube-system/configmaps/"+volume.ConfigMap.Name, nil)
		files, _ := object["data"].(map[string]any)
		for file, body := range files {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(body.(string)), 0o644); err != nil {
				n.Fatal(err)
			}
		}
		return folder
	}
	n.Fatalf("the pod has no volume %s", name)
	return ""
}

// token waits until the kubeconfig's token is another one, and returns it.
func (n *installerNode) token(other string, said *bytes.Buffer) string {
	n.Helper()
	path := filepath.Join(n.host, "/etc/cni/net.d/calico-kubeconfig")
	var parsed struct {
		Users []struct{ User struct{ Token string } }
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// At any moment it is a whole one.
		if err := yaml.Unmarshal(text, &parsed); err != nil || len(parsed.Users) != 1 || parsed.Users[0].User.Token == "" {
			n.Fatalf("not a kubeconfig: %v", err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			n.Fatalf("%v, %v", info, err)
		}
		if token := parsed.Users[0].User.Token; token != other {
			return token
		}
	}
	n.Fatalf("no new token within a minute:\n%s", said)
	return ""
}

// awaitConfiguration waits for the last file that is installed.
func (n *installerNode) awaitConfiguration(said *bytes.Buffer) string {
	n.Helper()
	list := filepath.Join(n.host, "/etc/cni/net.d/10-calico.conflist")
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(list); err == nil {
			return list
		}
	}
	n.Fatalf("no configuration within a minute:\n%s", said)
	return ""
}

// user is who a token is of.
func user(t *testing.T, token string) string {
	t.Helper()
	answer := cluster.As(t, token).Do(t, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
	})
	status, _ := answer["status"].(map[string]any)
	info, _ := status["userInfo"].(map[string]any)
	return fmt.Sprint(info["username"])
}

// end stops the container as kubelet does.
func end(t *testing.T, command *exec.Cmd, said *bytes.Buffer) {
	t.Helper()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("told to end: %v\n%s", err, said)
	}
}

// TestInstaller runs the DaemonSet's container as the API server has it.
func TestInstaller(t *testing.T) {
	n := newInstallerNode(t)
	n.env = []string{"CNI_TOKEN_REFRESH_INTERVAL=300ms"}
	command, said := n.start()
	first := n.token("", said)
	if got := user(t, first); got != "system:serviceaccount:kube-system:calico-cni-plugin" {
		t.Errorf("the plugins are %s", got)
	}
	t.Run("Network/60 renewed in time", func(t *testing.T) {
		if second := n.token(first, said); user(t, second) != user(t, first) {
			t.Error("the new token is of another account")
		}
	})
	list := n.awaitConfiguration(said)
	end(t, command, said)
	for _, token := range []string{first, cluster.AccountToken(t, "kube-system", "calico-cni-installer")} {
		if strings.Contains(said.String(), strings.Split(token, ".")[1][:40]) {
			t.Error("the log holds a token")
		}
	}
	n.pluginsWork(t, list)
}

// pluginsWork runs what was installed with what was installed.
func (n *installerNode) pluginsWork(t *testing.T, list string) {
	e := newEnv(t, model.GroupV1)
	e.plant("clusterinformations", "ClusterInformation", map[string]any{"name": "default"}, map[string]any{"datastoreReady": true})
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	var conf struct {
		Name    string
		Plugins []map[string]any
	}
	if err := json.Unmarshal(text, &conf); err != nil {
		t.Fatal(err)
	}
	calico := conf.Plugins[0]
	if calico["nodename"] != "worker-b" || calico["mtu"] != 0.0 || calico["datastore_type"] != "kubernetes" {
		t.Errorf("%v", calico)
	}
	calico["name"], calico["cniVersion"] = conf.Name, "1.1.0"
	// The host's folders are elsewhere here.
	calico["kubernetes"] = map[string]any{"kubeconfig": filepath.Join(n.host, "/etc/cni/net.d/calico-kubeconfig")}
	delete(calico, "log_file_path")
	stdin, err := json.Marshal(calico)
	if err != nil {
		t.Fatal(err)
	}
	test := exec.CommandContext(t.Context(), filepath.Join(n.host, "/opt/cni/bin/calico"), "-t")
	test.Stdin = bytes.NewReader(stdin)
	if out, err := test.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v: %s", err, out)
	}
}

// TestInstallerRotation: kubelet replaces the pod's own token.
func TestInstallerRotation(t *testing.T) {
	n := newInstallerNode(t)
	command, said := n.start()
	first := n.token("", said)
	t.Run("Network/60 renewed when the service account is rotated", func(t *testing.T) {
		rotated := make(chan struct{})
		stop := make(chan struct{})
		go func() {
			defer close(rotated)
			// More than once: the first may come before the folder is watched.
			for {
				select {
				case <-stop:
					return
				case <-time.After(300 * time.Millisecond):
					n.project(cluster.AccountToken(n, "kube-system", "calico-cni-installer"))
				}
			}
		}()
		if second := n.token(first, said); user(t, second) != user(t, first) {
			t.Error("the new token is of another account")
		}
		close(stop)
		<-rotated
	})
	end(t, command, said)
}

func TestInstallerRefusals(t *testing.T) {
	n := newInstallerNode(t)
	n.env = []string{"SLEEP=false"}
	for _, row := range []struct{ name, account, env, want string }{
		{"an account that may not", "calico-cni-plugin", "", "does not allow to create serviceaccounts/token"},
		{"another account than the role names", "calico-cni-installer", "CALICO_CNI_SERVICE_ACCOUNT=default", "does not allow to create serviceaccounts/token"},
	} {
		t.Run(row.name, func(t *testing.T) {
			n.project(cluster.AccountToken(t, "kube-system", row.account))
			n.env = []string{"SLEEP=false", row.env}
			command, said := n.start()
			if err := command.Wait(); err == nil || !strings.Contains(said.String(), row.want) {
				t.Errorf("%v\n%s", err, said)
			}
			if _, err := os.Stat(filepath.Join(n.host, "/etc/cni/net.d/10-calico.conflist")); err == nil {
				t.Error("the runtime would begin to use what cannot work")
			}
		})
	}
}

// TestTokenRequest asks the server for what it does not have.
func TestTokenRequest(t *testing.T) {
	store, err := kubernetes.Open(t.Context(), kubernetes.Options{Server: cluster.URL, CAFile: cluster.CAFile, Token: kubetest.AdminToken})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	token, ends, err := store.RequestToken(t.Context(), "kube-system", "calico-cni-plugin", 24*time.Hour)
	if err != nil || time.Until(ends).Round(time.Hour) != 24*time.Hour || user(t, token) == "" {
		t.Errorf("ends %v, %v", ends, err)
	}
	// By this the server's clock is known.
	answer := cluster.Admin().Do(t, "POST", "/api/v1/namespaces/kube-system/serviceaccounts/calico-cni-plugin/token", map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{},
	})
	if created, _ := at(answer, "metadata", "creationTimestamp").(string); created == "" {
		t.Errorf("the answer does not tell when it was made: %v", at(answer, "metadata"))
	}
	_, _, err = store.RequestToken(t.Context(), "kube-system", "absent", time.Hour)
	if err == nil || errors.Is(err, kubernetes.ErrNoTokenRequest) || !strings.Contains(err.Error(), "no service account kube-system/absent") {
		t.Errorf("%v", err)
	}
}

// TestInstallerRole: the installer asks for tokens of one account and may do
// nothing else.
func TestInstallerRole(t *testing.T) {
	if err := cluster.Apply("deploy/installer-rbac.yaml"); err != nil {
		t.Fatal(err)
	}
	installer := cluster.As(t, cluster.AccountToken(t, "kube-system", "calico-cni-installer"))
	for _, path := range []string{
		"POST /api/v1/namespaces/kube-system/serviceaccounts/calico-cni-installer/token",
		"POST /api/v1/namespaces/kube-system/serviceaccounts/default/token",
		"POST /api/v1/namespaces/default/serviceaccounts/calico-cni-plugin/token",
		"GET /api/v1/namespaces/kube-system/serviceaccounts/calico-cni-plugin",
		"GET /api/v1/namespaces/kube-system/secrets",
		"GET /api/v1/nodes", "GET /api/v1/namespaces",
		"GET /apis/crd.projectcalico.org/v1/ippools",
	} {
		method, path, _ := strings.Cut(path, " ")
		var body any
		if method == http.MethodPost {
			body = map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}}
		}
		_, err := installer.Try(method, path, body)
		var answer *kubetest.AnswerError
		if !errors.As(err, &answer) || answer.Status != http.StatusForbidden {
			t.Errorf("%s %s: %v, want it forbidden", method, path, err)
		}
	}
}

// TestManifests: the server knows every member of what is applied.
func TestManifests(t *testing.T) {
	for _, manifest := range append([]string{"deploy/rbac.yaml", "deploy/windows/daemonset.yaml"}, installerManifests...) {
		if err := cluster.Check(manifest); err != nil {
			t.Error(err)
		}
	}
}
