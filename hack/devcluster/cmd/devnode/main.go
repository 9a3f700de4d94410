// Command devnode is what a cluster with a node needs in addition to devcluster: kube-scheduler, kubelet and kube-proxy
// in one program. Called by one of these names, or with it as its first argument, it is that program.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // for --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics of the components
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric of the components
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs are the programs that this one can be. Each command is made only for the one that runs, since making one
// registers flags and feature gates for the whole process.
var programs = map[string]func() *cobra.Command{
	"kube-scheduler": func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":        func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":     proxy.NewProxyCommand,
}

func main() {
	program, ok := programs[filepath.Base(os.Args[0])]
	if !ok && len(os.Args) > 1 {
		if program, ok = programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
		}
	}
	if !ok {
		fmt.Fprintln(os.Stderr, "devnode: call it as kube-scheduler, kubelet or kube-proxy, or give one of these as the first argument")
		os.Exit(2)
	}
	os.Exit(cli.Run(program()))
}
