package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
)

// WriteImage writes an image with one layer, which holds a folder, in the
// format of "docker save".
func WriteImage(archive, name, folder, entrypoint string) error {
	var layer bytes.Buffer
	writer := tar.NewWriter(&layer)
	err := writer.AddFS(os.DirFS(folder))
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		return fmt.Errorf("making image %s: %w", name, err)
	}
	image, err := describe(name, layer.Bytes(), entrypoint)
	if err == nil {
		err = os.WriteFile(archive, image, 0o644)
	}
	if err != nil {
		return fmt.Errorf("making image %s: %w", name, err)
	}
	return nil
}

// pack archives files with these contents.
func pack(files map[string][]byte) ([]byte, error) {
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name])), Typeflag: tar.TypeReg}); err != nil {
			return nil, err
		}
		if _, err := writer.Write(files[name]); err != nil {
			return nil, err
		}
	}
	return archive.Bytes(), writer.Close()
}

func describe(name string, layer []byte, entrypoint string) ([]byte, error) {
	digest := func(text []byte) string {
		sum := sha256.Sum256(text)
		return hex.EncodeToString(sum[:])
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{entrypoint}, "WorkingDir": "/"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return nil, err
	}
	configName := digest(config) + ".json"
	manifest, err := json.Marshal([]any{map[string]any{"Config": configName, "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return nil, err
	}
	return pack(map[string][]byte{configName: config, "layer.tar": layer, "manifest.json": manifest})
}
