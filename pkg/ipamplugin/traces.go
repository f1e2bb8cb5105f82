package ipamplugin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"calico-cni/pkg/cnierr"
)

// An attachment note is a file named by the digest of a handle id and holding
// the id. It exists from before the first write of an ADD, or of a GC that finds
// none, until after the release, so GC finds addresses that no block of this host tells of ("where
// we go beyond the reference" 6). Notes are best effort: none fails a verb.

func notePath(directory, handleID string) string {
	sum := sha256.Sum256([]byte(handleID))
	return filepath.Join(directory, hex.EncodeToString(sum[:]))
}

// unfinished ends the name of a note that is being written. A note is renamed
// into place: one that was cut short would tell nothing, and a repeated ADD
// must not cut that of addresses in use.
const unfinished = ".new"

func (s *serving) writeNote() { s.writeNoteOf(s.ID.HandleID()) }

func (s *serving) writeNoteOf(handleID string) {
	path := notePath(s.plugin.NotesDirectory, handleID)
	err := os.MkdirAll(s.plugin.NotesDirectory, 0o755)
	if err == nil {
		err = os.WriteFile(path+unfinished, []byte(handleID), 0o600)
	}
	if err == nil {
		err = os.Rename(path+unfinished, path)
	}
	if err != nil {
		s.Log.Warn("the attachment note was not written; GC may not find this container's addresses if it is lost", "error", err)
	}
}

func (s *serving) noted(handleID string) bool {
	_, err := os.Stat(notePath(s.plugin.NotesDirectory, handleID))
	return err == nil
}

func (s *serving) removeNote(handleID string) {
	path := notePath(s.plugin.NotesDirectory, handleID)
	for _, file := range []string{path + unfinished, path} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.Log.Warn("the attachment note was not removed", "error", err)
			return
		}
	}
}

// Notes returns the handle ids of a network's notes in a directory. Files that
// are no notes are passed over.
func Notes(directory, network string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), unfinished)
		if len(name) != hex.EncodedLen(sha256.Size) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err == nil && filepath.Base(notePath("", string(content))) == name && strings.HasPrefix(string(content), network+".") {
			ids = append(ids, string(content))
		}
	}
	return ids, err
}

func (s *serving) notes() []string {
	ids, err := Notes(s.plugin.NotesDirectory, s.Conf.Name)
	if err != nil {
		s.Log.Warn("the attachment notes cannot be read: addresses borrowed by lost containers are not found", "error", err)
	}
	return ids
}

// The hint is an empty file beside the lock file. It says that the last ADD of
// this network on this host failed for want of addresses, so that STATUS looks
// for the cause only then ("where we go beyond the reference" 1).

func (s *serving) hintPath() string {
	return filepath.Join(filepath.Dir(s.Conf.IPAMLockFile), "no-address-"+s.Conf.Name)
}

func (s *serving) hinted() bool {
	_, err := os.Stat(s.hintPath())
	return err == nil
}

// leaveHint records how an ADD ended.
func (s *serving) leaveHint(err error) {
	switch cnierr.CodeOf(err) {
	case cnierr.NoPool, cnierr.AddressesExhausted, cnierr.BlockLimit, cnierr.NodeUnknown:
		err := os.MkdirAll(filepath.Dir(s.hintPath()), 0o755)
		if err == nil {
			err = os.WriteFile(s.hintPath(), nil, 0o644)
		}
		if err != nil {
			s.Log.Warn("the hint for STATUS was not written", "error", err)
		}
	default:
		if err == nil {
			s.removeHint()
		}
	}
}

func (s *serving) removeHint() {
	if err := os.Remove(s.hintPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.Log.Warn("the hint for STATUS was not removed", "error", err)
	}
}
