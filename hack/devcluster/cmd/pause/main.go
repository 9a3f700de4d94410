// Command pause is the program of a pod's sandbox container: it holds the pod's namespaces open and does nothing else.
//
// The container runtime needs an image with such a program, and where there is no registry the usual one cannot be
// pulled. The runtime ends it with SIGKILL; SIGTERM and SIGINT are taken as well so that a person can end it too.
// As process 1 of a pod with shareProcessNamespace it also inherits orphans, so it reaps them.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}
