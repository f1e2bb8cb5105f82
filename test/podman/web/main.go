// Command web is all that the test's image holds: it answers who asked.
package main

import (
	"fmt"
	"log"
	"net/http"
	"time"
)

func main() {
	server := http.Server{Addr: ":80", ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "you are", r.RemoteAddr) })}
	log.Fatal(server.ListenAndServe())
}
