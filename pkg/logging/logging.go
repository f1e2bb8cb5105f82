package logging

import (
	"io"
	"log/slog"
	"strings"
	"time"
)

// Options say what is logged and where, beside stderr.
type Options struct {
	// Level is debug, info or error in any case; every other text means info.
	Level string
	// File is the path of the log file; empty for none.
	File string
	// MaxSizeMB is the size at which the file is rotated; 0 for never.
	MaxSizeMB int
	// MaxCount is how many rotated files are kept, at least 1.
	MaxCount int
	// MaxAgeDays is how long they are kept; 0 for no limit.
	MaxAgeDays int
}

const day = 24 * time.Hour

// New returns a logger and a function that closes its file. A log file that
// cannot be opened is reported on stderr and otherwise done without.
func New(o Options, stderr io.Writer) (logger *slog.Logger, closeFile func()) {
	return newLogger(o.Level, o.File, limits{
		size:  int64(o.MaxSizeMB) << 20,
		count: max(1, o.MaxCount),
		age:   time.Duration(o.MaxAgeDays) * day,
	}, stderr)
}

func newLogger(level, path string, limits limits, stderr io.Writer) (*slog.Logger, func()) {
	handlerOptions := &slog.HandlerOptions{Level: parseLevel(level)}
	toStderr := slog.New(slog.NewTextHandler(stderr, handlerOptions))
	if path == "" {
		return toStderr, func() {}
	}
	file, err := openFile(path, limits)
	if err != nil {
		toStderr.Warn("The log file cannot be used, logging to stderr only", "error", err)
		return toStderr, func() {}
	}
	return slog.New(slog.NewTextHandler(tee{stderr, file}, handlerOptions)), file.close
}

func parseLevel(text string) slog.Level {
	switch strings.ToLower(text) {
	case "debug":
		return slog.LevelDebug
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

// tee writes each record to all writers. One that fails does not keep it from
// the others, and logging has nobody to report to.
type tee []io.Writer

func (t tee) Write(record []byte) (int, error) {
	for _, w := range t {
		_, _ = w.Write(record)
	}
	return len(record), nil
}
