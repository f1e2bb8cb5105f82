package embedded

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"calico-cni/pkg/datastore"
	"calico-cni/pkg/model"
)

// writerPath names the file, in a process of the test binary that does
// nothing but write until it is killed.
const writerPath = "EMBEDDED_TEST_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerPath); path != "" {
		writeUntilKilled(path)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeUntilKilled counts a handle up, and prints each number that is written.
func writeUntilKilled(path string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	store, _, err := Open(ctx, path, Bootstrap{NodeName: node})
	if err != nil {
		fmt.Println(err)
		return
	}
	key := model.ResourceKey{Kind: model.KindProfile, Name: "count"}
	for {
		answers, err := store.Read(ctx, datastore.Get{Key: key})
		if err != nil {
			fmt.Println(err)
			return
		}
		profile, revision := datastore.One[model.Profile](answers[0])
		next := strconv.Itoa(counted(profile) + 1)
		put := datastore.Put(key, &model.Profile{Metadata: model.Metadata{Name: "count", Labels: map[string]string{"n": next}}}, revision)
		if _, err := store.Write(ctx, datastore.Step{put}); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(next)
	}
}

func counted(profile *model.Profile) int {
	if profile == nil {
		return 0
	}
	count, _ := strconv.Atoi(profile.Metadata.Labels["n"])
	return count
}

// killed runs a writer, kills it when it has lived so long or printed so many
// lines, and returns the last number that it said it had written.
func killed(t *testing.T, path string, lifetime time.Duration, lines int) (last int) {
	t.Helper()
	writer := exec.Command(os.Args[0])
	writer.Env = append(os.Environ(), writerPath+"="+path)
	writer.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := writer.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(lifetime, func() { _ = writer.Process.Kill() })
	defer kill.Stop()
	scanner := bufio.NewScanner(output)
	for range lines {
		if !scanner.Scan() {
			break
		}
		if last, err = strconv.Atoi(scanner.Text()); err != nil {
			t.Fatalf("the writer said %q", scanner.Text())
		}
	}
	_ = writer.Process.Kill() // it may be dead already
	for scanner.Scan() {
		last, _ = strconv.Atoi(scanner.Text())
	}
	_ = writer.Wait() // killed, always
	return last
}

// TestKilledWriter kills writers in the middle of their work: what they said
// they had written is there, and at most one more.
func TestKilledWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "datastore")
	for lines := range 15 {
		last := killed(t, path, time.Minute, 3+lines)
		store, _ := mustOpen(t, path, Bootstrap{NodeName: node})
		count := counted(mustGet[model.Profile](t, store, model.ResourceKey{Kind: model.KindProfile, Name: "count"}))
		if count != last && count != last+1 {
			t.Fatalf("the writer wrote %d, the file has %d", last, count)
		}
	}
}

// TestKilledCreator kills processes in their first milliseconds, in which the
// file is made.
func TestKilledCreator(t *testing.T) {
	t.Parallel()
	for lifetime := time.Duration(0); lifetime < 40*time.Millisecond; lifetime += time.Millisecond {
		path := filepath.Join(t.TempDir(), "datastore")
		last := killed(t, path, lifetime, 1000)
		store, _ := mustOpen(t, path, Bootstrap{NodeName: node})
		answers, err := store.Read(withDeadline(t), datastore.Get{Key: model.ResourceKey{Kind: model.KindProfile, Name: "count"}})
		if err != nil {
			t.Fatal(err)
		}
		profile, _ := datastore.One[model.Profile](answers[0])
		if count := counted(profile); count != last && count != last+1 {
			t.Fatalf("after %v: the writer wrote %d, the file has %d", lifetime, last, count)
		}
	}
}
