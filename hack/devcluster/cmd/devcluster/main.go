// Command devcluster runs a real Kubernetes on this machine for tests, demos and measurements.
//
// One program is all of it: called as etcd, kube-apiserver, kube-controller-manager or kubectl, by its own name or by its
// first argument, it is that program; otherwise it is the launcher. The node's programs are in devnode, which takes long
// to build and which most tests do without.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	etcd "go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // for --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client metrics of the components
	_ "k8s.io/component-base/metrics/prometheus/version"  // version metric of the components
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// programs are the programs that this one can be.
var programs = map[string]func(){
	"etcd":                    func() { etcd.Main(os.Args) },
	"kube-apiserver":          func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
	"kube-controller-manager": func() { os.Exit(cli.Run(controllermanager.NewControllerManagerCommand())) },
	"kubectl":                 runKubectl,
}

func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err) // prints it as kubectl does, and exits
	}
}

func main() {
	if run, ok := programs[filepath.Base(os.Args[0])]; ok {
		run()
		return
	}
	// `devcluster kubectl` is a command of the launcher, which finds the cluster first.
	if len(os.Args) > 1 && os.Args[1] != "kubectl" {
		if run, ok := programs[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	if err := newCommand().Execute(); err != nil {
		code := 1
		if exit, ok := err.(exitCode); ok { //nolint:errorlint // made by this program and never wrapped
			code = int(exit)
		} else {
			fmt.Fprintln(os.Stderr, "devcluster:", err)
		}
		os.Exit(code)
	}
}
