package installer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	calicocni "calico-cni"
)

// Installer installs on one node.
type Installer struct {
	Settings Settings
	Layout   Layout
	GOOS     string
	Log      *slog.Logger

	template string
	inPod    bool
	// ends is when the token in the kubeconfig ends.
	ends time.Time
}

// Run installs. If it is to stay, it then renews what ends or changes, until
// ctx ends. A mistake in the settings or the template is found before anything
// is touched. The configuration is written last: with it the runtime begins to
// use the rest.
func (in *Installer) Run(ctx context.Context) error {
	if err := in.prepare(); err != nil {
		return err
	}
	found, err := in.installAssets()
	if err != nil {
		return err
	}
	if err := in.installBinaries(); err != nil {
		return err
	}
	token := ""
	if in.inPod {
		c, err := in.firstCredentials(ctx)
		if err != nil {
			return err
		}
		if err := in.writeKubeconfig(c); err != nil {
			return err
		}
		token = c.token
	}
	if err := in.configure(ctx, found, token); err != nil {
		return err
	}
	if err := in.removeOld(); err != nil {
		return err
	}
	if !in.Settings.Sleep {
		in.sayWhatEnds()
		return nil
	}
	return in.keep(ctx, token)
}

// prepare reads what the rest needs and finds mistakes in it.
func (in *Installer) prepare() error {
	for _, warning := range in.Settings.Warnings {
		in.Log.Warn(warning)
	}
	var err error
	if in.template, err = in.readTemplate(); err != nil {
		return err
	}
	in.inPod = exists(in.Layout.tokenFile())
	if in.inPod && in.Settings.Server == "" {
		return errors.New("this pod has a service account, but its environment does not say where the API server is: " +
			"set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT")
	}
	found, err := readAssets(in.Layout.within(in.Settings.TLSDir))
	if err != nil {
		return err
	}
	if _, _, err := in.render(found, "none yet"); err != nil {
		return err
	}
	info, err := os.Stat(in.Layout.ConfDir)
	switch {
	case err != nil:
		return fmt.Errorf("the folder of the configuration: %w; mount the host's %s there", err, in.Settings.NetDir)
	case !info.IsDir():
		return fmt.Errorf("the folder of the configuration: %s is not a directory", in.Layout.ConfDir)
	}
	return nil
}

func (in *Installer) readTemplate() (string, error) {
	if in.Settings.TemplateFile == "" {
		if in.Settings.Template != "" {
			return in.Settings.Template, nil
		}
		return calicocni.ConfigTemplate, nil
	}
	body, err := os.ReadFile(in.Layout.within(in.Settings.TemplateFile))
	if err != nil {
		return "", fmt.Errorf("CNI_NETWORK_CONFIG_FILE: reading the template: %w", err)
	}
	return string(body), nil
}

// installAssets puts the files for etcd where the plugins read them.
func (in *Installer) installAssets() (assets, error) {
	found, err := readAssets(in.Layout.within(in.Settings.TLSDir))
	if err != nil {
		return nil, err
	}
	return found, found.write(in.Layout.tlsDir())
}

func (in *Installer) installBinaries() error {
	names, err := pluginFiles(in.Layout.From)
	if err != nil {
		return err
	}
	plan, err := planCopies(names, in.Settings.Skip, in.GOOS)
	if err != nil {
		return fmt.Errorf("%s: %w", in.Layout.From, err)
	}
	var dirs []binDir
	for _, path := range in.Layout.BinDirs {
		dirs = append(dirs, look(path, in.GOOS))
	}
	chosen, err := chooseDirs(dirs, in.Settings.Update)
	if err != nil {
		return err
	}
	for _, dir := range chosen {
		if err := in.installInto(dir, names, plan); err != nil {
			return err
		}
	}
	return nil
}

func (in *Installer) installInto(dir string, names []string, plan []copying) error {
	// Also of what is not installed any more.
	for _, name := range names {
		if err := removeLeftovers(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, one := range plan {
		to := filepath.Join(dir, one.to)
		changed, err := installFile(filepath.Join(in.Layout.From, one.from), to, in.Settings.Update)
		if err != nil {
			return err
		}
		if changed {
			in.Log.Info("installed", "plugin", to)
		}
	}
	return nil
}

func (in *Installer) writeKubeconfig(c credentials) error {
	body := kubeconfig(in.Settings.Server, c.authority, c.token)
	if err := writeFile(in.Layout.kubeconfig(), 0o600, body); err != nil {
		return err
	}
	in.ends = c.ends
	in.Log.Info("written", "kubeconfig", in.Layout.kubeconfig(), "token ends", c.ends.UTC().Format(time.RFC3339))
	return nil
}

// render fills in the template.
func (in *Installer) render(found assets, token string) ([]byte, conflist, error) {
	body, err := render(in.template, in.Settings.withPaths(found, token), in.GOOS)
	if err != nil {
		return nil, conflist{}, err
	}
	list, err := inspect(body)
	if err != nil {
		return nil, conflist{}, fmt.Errorf("the rendered configuration: %w", err)
	}
	return body, list, nil
}

// withPaths adds the values that depend on what there is.
func (s Settings) withPaths(found assets, token string) values {
	v := values{
		"KUBECONFIG_FILEPATH":  text(s.onHost(kubeconfigName)),
		"KUBECONFIG":           text(s.onHost(kubeconfigName)),
		"SERVICEACCOUNT_TOKEN": text(token),
	}
	for name, value := range s.values {
		v[name] = value
	}
	for _, asset := range assetNames {
		v[asset.placeholder] = text("")
		if _, there := found[asset.file]; there {
			v[asset.placeholder] = text(s.onHost(tlsName, asset.file))
		}
	}
	return v
}

// configure writes the configuration.
func (in *Installer) configure(ctx context.Context, found assets, token string) error {
	body, list, err := in.render(found, token)
	if err != nil {
		return err
	}
	warnings := list.warnings
	if len(list.versions) > 0 {
		known, unasked := askVersions(ctx, list.plugins, in.Layout.BinDirs)
		settled, unserved, err := settle(body, list, known)
		if err != nil {
			return err
		}
		body, warnings = settled, slices.Concat(warnings, unasked, unserved)
	}
	for _, warning := range warnings {
		in.Log.Warn(warning)
	}
	path := filepath.Join(in.Layout.ConfDir, in.Settings.ConfName)
	if err := writeFile(path, in.Settings.ConfMode, body); err != nil {
		return err
	}
	in.Log.Info("written", "configuration", path)
	if !in.inPod && !exists(in.Layout.kubeconfig()) && strings.Contains(string(body), kubeconfigName) {
		in.Log.Warn("there is no service account to make a kubeconfig of: put one where the configuration names it",
			"kubeconfig", in.Settings.onHost(kubeconfigName))
	}
	return nil
}

// removeOld removes the configuration under its former name.
func (in *Installer) removeOld() error {
	if in.Settings.OldConfName == in.Settings.ConfName {
		return nil
	}
	old := filepath.Join(in.Layout.ConfDir, in.Settings.OldConfName)
	if err := removeLeftovers(old); err != nil {
		return err
	}
	err := os.Remove(old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the configuration's old file: %w", err)
	}
	if err == nil {
		in.Log.Info("removed", "configuration", old)
	}
	return nil
}

func (in *Installer) sayWhatEnds() {
	if in.inPod {
		in.Log.Warn("SLEEP is false: the token in the kubeconfig is not renewed by this process",
			"kubeconfig", in.Layout.kubeconfig(), "ends", in.ends.UTC().Format(time.RFC3339))
	}
}
