package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// instructions say what to do.
type instructions struct {
	// Record is the file that calls are appended to.
	Record string `json:"record"`
	// Answers are what is printed, by verb; none is printed for others.
	Answers map[string]json.RawMessage `json:"answers"`
	// Failing lists the verbs whose answer is an error object.
	Failing []string `json:"failing"`
}

// call is one line of the record.
type call struct {
	Verb  string            `json:"verb"`
	Env   map[string]string `json:"env"`
	Stdin json.RawMessage   `json:"stdin"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(2)
	}
}

func run() error {
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var configuration struct {
		Standin instructions `json:"standin"`
	}
	if err := json.Unmarshal(stdin, &configuration); err != nil {
		return err
	}
	do := configuration.Standin
	verb := os.Getenv("CNI_COMMAND")
	if err := record(do.Record, verb, stdin); err != nil {
		return err
	}
	os.Stdout.Write(do.Answers[verb])
	for _, failing := range do.Failing {
		if failing == verb {
			os.Exit(1)
		}
	}
	return nil
}

func record(path, verb string, stdin []byte) error {
	env := map[string]string{}
	for _, name := range []string{
		"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH",
	} {
		if value, set := os.LookupEnv(name); set {
			env[name] = value
		}
	}
	line, err := json.Marshal(call{Verb: verb, Env: env, Stdin: stdin})
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.Write(append(line, '\n')); err != nil {
		return err
	}
	return file.Close()
}
