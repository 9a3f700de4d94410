package olm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// greetings is an operator whose instances have a pod each, so that one that is restarted is seen.
const greetings = `
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: greetings.example.com}
spec:
  crd:
    group: example.com
    names: {kind: Greeting}
    versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            spec: {type: object, required: [text], properties: {text: {type: string, minLength: 1, maxLength: 1000}}}
  serviceAccount: {namespace: greetings, name: greetings}
  resources:
  - name: text
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}"}
      data: {text: "${self.spec.text}"}
  - name: reader
    template:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "${text.metadata.name}"}
      spec:
        selector: {matchLabels: {greeting: "${self.metadata.name}"}}
        template:
          metadata: {labels: {greeting: "${self.metadata.name}"}}
          spec:
            terminationGracePeriodSeconds: 0
            containers:
            - {name: reader, image: "localhost/busybox:1", imagePullPolicy: IfNotPresent, command: [sleep, "86400"]}
  operations:
  - name: hold
    timeout: 10m
    steps:
    - name: word
      wait: {until: self.spec.text == 'go'}
`

// TestOLM is the life of an installation, in order.
func TestOLM(t *testing.T) {
	m := startOLM(t)
	m.publish(t, "0.1.0")
	step := func(name string, f func(*testing.T)) {
		if !t.Run(name, f) {
			t.FailNow()
		}
	}
	step("install", func(t *testing.T) {
		m.succeeded(t, "0.1.0")
		unpacked := items(t, "jobs", "-n", namespace, "-l", "operatorframework.io/bundle-unpack-ref")
		if len(unpacked) == 0 {
			t.Error("the bundle was not unpacked from its image")
		}
		runs(t, m, "0.1.0")
	})
	step("the image of the catalogue serves", func(t *testing.T) {
		catalogImage(t, m)
	})
	step("a definition works", func(t *testing.T) {
		admission(t)
		serveGreetings(t)
		m.log(t, "three Greetings are ready")
	})
	step("scorecard", func(t *testing.T) {
		scorecard(t, m)
	})
	var before []unstructured.Unstructured
	step("upgrade", func(t *testing.T) {
		before = settled(t)
		m.publish(t, "0.2.0")
		m.succeeded(t, "0.2.0")
		runs(t, m, "0.2.0")
		unchanged(t, before)
		stillServed(t, "after the upgrade")
		unchangedBut(t, before, "a")
		noErrors(t)
		m.log(t, "no child was restarted or rewritten; the definition is served by 0.2.0")
	})
	step("an upgrade waits for a running operation", func(t *testing.T) {
		gate(t, m)
	})
	step("uninstall", func(t *testing.T) {
		m.log(t, "libretto uninstall: %s", strings.ReplaceAll(libretto(t, "uninstall", "--yes", "--save", filepath.Join(t.TempDir(), "definitions.yaml")), "\n", "; "))
		kubectl(t, "delete", "-n", namespace, "subscription", "libretto")
		kubectl(t, "delete", "-n", namespace, "csv", "-l", "operators.coreos.com/libretto.libretto-system")
		eventually(t, patience, func() error {
			if pods := kubectl(t, "get", "pods", "-n", namespace, "-l", "control-plane=controller-manager", "-o", "name"); strings.TrimSpace(pods) != "" {
				return fmt.Errorf("there are pods yet: %s", pods)
			}
			return nil
		})
		kubectl(t, "get", "crd", "operatordefinitions.libretto.dev", "operatorrevisions.libretto.dev", "greetings.example.com")
		kubectl(t, "get", "-n", "greetings", "greeting", "a", "b", "c")
		unchangedBut(t, before, "a", "b")
		m.log(t, "the manager is gone; kinds, instances and their children are there")
		// Nobody has to take a finalizer off.
		kubectl(t, "delete", "-n", "greetings", "--timeout=30s", "greeting", "--all")
		kubectl(t, "delete", "--timeout=30s", "crd", "greetings.example.com", "greetingoperations.example.com")
		m.log(t, "instances and kinds could be deleted")
	})
	step("kustomize", func(t *testing.T) {
		kustomize(t, m)
	})
	step("as OLM v1 renders it", func(t *testing.T) {
		renderedByV1(t, m)
	})
}

// runs looks at the pods of the manager: which image, and that they are ready.
func runs(t *testing.T, m *lifecycleManager, version string) {
	t.Helper()
	image, err := os.ReadFile(filepath.Join(m.dir, version, "image"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error {
		pods := items(t, "pods", "-n", namespace, "-l", "control-plane=controller-manager")
		for _, p := range pods {
			containers, _, _ := unstructured.NestedSlice(p.Object, "spec", "containers")
			if got := containers[0].(map[string]any)["image"]; got != strings.TrimSpace(string(image)) {
				return fmt.Errorf("pod %s has image %v", p.GetName(), got)
			}
			// OLM rolls the Deployment out a second time, to tell it the name of its OperatorCondition.
			env, _ := containers[0].(map[string]any)["env"].([]any)
			if !slices.ContainsFunc(env, func(e any) bool {
				return e.(map[string]any)["name"] == "OPERATOR_CONDITION_NAME" && e.(map[string]any)["value"] == "libretto.v"+version
			}) {
				return fmt.Errorf("pod %s does not know the OperatorCondition of %s", p.GetName(), version)
			}
			statuses, _, _ := unstructured.NestedSlice(p.Object, "status", "containerStatuses")
			if len(statuses) == 0 || statuses[0].(map[string]any)["ready"] != true {
				return fmt.Errorf("pod %s is not ready", p.GetName())
			}
		}
		if len(pods) != 2 {
			return fmt.Errorf("%d pods, not two", len(pods))
		}
		return nil
	})
	m.log(t, "two pods of %s are ready", strings.TrimSpace(string(image)))
}

// admission: the webhook that OLM configured and certified refuses a definition that does not compile.
func admission(t *testing.T) {
	t.Helper()
	bad := strings.ReplaceAll(greetings, "self.spec.text", "self.spec.nothing")
	_, err := command(t.Context(), strings.NewReader(bad), "kubectl", "apply", "--server-side", "-f", "-")
	if err == nil || !strings.Contains(err.Error(), "there is no field nothing") {
		t.Fatalf("a definition with an error is refused by the webhook, found: %v", err)
	}
}

func serveGreetings(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "definition.yaml")
	if err := os.WriteFile(file, []byte(greetings), 0o600); err != nil {
		t.Fatal(err)
	}
	applyText(t, "{apiVersion: v1, kind: Namespace, metadata: {name: greetings}}")
	libretto(t, "rbac", file, "--apply")
	applyText(t, greetings)
	kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "opdef", "greetings.example.com")
	for _, name := range []string{"a", "b", "c"} {
		applyText(t, fmt.Sprintf("{apiVersion: example.com/v1, kind: Greeting, metadata: {name: %s, namespace: greetings}, spec: {text: hello}}", name))
	}
	kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "-n", "greetings", "greeting", "--all")
}

// children are what the instances stand for, pods included.
func children(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	return items(t, "configmaps,deployments,replicasets,pods", "-n", "greetings", "--field-selector", "metadata.name!=kube-root-ca.crt")
}

// fingerprint is what changes when an object is replaced, written to or restarted. Kubelet writes the status of a pod when it likes: of a
// pod it is the restarts that count.
func fingerprint(o unstructured.Unstructured) string {
	if o.GetKind() != "Pod" {
		return string(o.GetUID()) + " at " + o.GetResourceVersion()
	}
	statuses, _, _ := unstructured.NestedSlice(o.Object, "status", "containerStatuses")
	restarts := []any{}
	for _, s := range statuses {
		restarts = append(restarts, s.(map[string]any)["restartCount"])
	}
	return fmt.Sprint(o.GetUID(), " generation ", o.GetGeneration(), " restarts ", restarts)
}

// settled are the children once nobody, kubelet included, writes their status any more.
func settled(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var last []unstructured.Unstructured
	eventually(t, patience, func() error {
		now := children(t)
		same := slices.EqualFunc(now, last, func(a, b unstructured.Unstructured) bool { return fingerprint(a) == fingerprint(b) })
		last = now
		if !same {
			time.Sleep(4 * time.Second)
			return errors.New("the children have not settled")
		}
		return nil
	})
	return last
}

// unchanged: the same objects, and none of them was written to.
func unchanged(t *testing.T, before []unstructured.Unstructured) {
	t.Helper()
	unchangedBut(t, before)
}

func unchangedBut(t *testing.T, before []unstructured.Unstructured, changed ...string) {
	t.Helper()
	after := children(t)
	if len(before) == 0 || len(after) != len(before) {
		t.Fatalf("there were %d children, and are %d", len(before), len(after))
	}
	for i, b := range before {
		a := after[i]
		meant := a.GetKind() == "ConfigMap" && slices.Contains(changed, a.GetName())
		if fingerprint(a) != fingerprint(b) && !meant || a.GetUID() != b.GetUID() {
			t.Errorf("%s %s changed: %s, was %s", a.GetKind(), a.GetName(), fingerprint(a), fingerprint(b))
		}
	}
}

// stillServed: a change of an instance reaches its child.
func stillServed(t *testing.T, text string) {
	t.Helper()
	kubectl(t, "patch", "-n", "greetings", "greeting", "a", "--type=merge", "-p", fmt.Sprintf(`{"spec":{"text":%q}}`, text))
	eventually(t, patience, func() error {
		got, err := command(context.Background(), nil, "kubectl", "get", "-n", "greetings", "configmap", "a", "-o", "jsonpath={.data.text}")
		if err != nil || got != text {
			return fmt.Errorf("the ConfigMap says %q: %w", got, err)
		}
		return nil
	})
	kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "opdef", "greetings.example.com")
}

// noErrors reads the metrics of the manager's pods, as Prometheus would: no reconcile failed.
func noErrors(t *testing.T) {
	t.Helper()
	kubectl(t, "create", "clusterrolebinding", "metrics-of-the-test", "--clusterrole", "libretto-metrics-reader", "--serviceaccount", "default:default")
	token := strings.TrimSpace(kubectl(t, "create", "token", "default", "-n", "default"))
	seen := false
	for pod, text := range metrics(t, token) {
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "controller_runtime_reconcile_errors_total{") && !strings.HasPrefix(line, "controller_runtime_reconcile_panics_total{") {
				continue
			}
			seen = true
			if fields := strings.Fields(line); fields[len(fields)-1] != "0" {
				t.Errorf("pod %s: %s", pod, line)
			}
		}
	}
	if !seen {
		t.Error("the metrics do not tell whether a reconcile failed")
	}
}

// gate: while a run is under way, OLM does not replace the version; when it has ended, it does.
func gate(t *testing.T, m *lifecycleManager) {
	upgradeable(t, m, "True")
	applyText(t, "{apiVersion: example.com/v1, kind: GreetingOperation, metadata: {name: hold, namespace: greetings}, spec: {target: b, operation: hold}}")
	kubectl(t, "wait", "--for=jsonpath={.status.state}=Running", "--timeout=60s", "-n", "greetings", "greetingoperation", "hold")
	upgradeable(t, m, "False")
	m.publish(t, "0.3.0")
	eventually(t, patience, func() error {
		csv, err := get("csv", "-n", namespace, "libretto.v0.3.0")
		if err != nil {
			return err
		}
		phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
		message, _, _ := unstructured.NestedString(csv.Object, "status", "message")
		if phase != "Pending" || !strings.Contains(message, "not upgradeable") {
			return fmt.Errorf("libretto.v0.3.0 is %s: %s", phase, message)
		}
		m.log(t, "libretto.v0.3.0 %s: %s", phase, message)
		return nil
	})
	time.Sleep(20 * time.Second) // several rounds of OLM
	csv, err := get("csv", "-n", namespace, "libretto.v0.3.0")
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase"); phase != "Pending" {
		t.Fatalf("libretto.v0.3.0 did not wait: it is %s", phase)
	}
	m.log(t, "libretto.v0.3.0 waits; the operation ends now")
	kubectl(t, "patch", "-n", "greetings", "greeting", "b", "--type=merge", "-p", `{"spec":{"text":"go"}}`)
	kubectl(t, "wait", "--for=jsonpath={.status.state}=Succeeded", "--timeout=60s", "-n", "greetings", "greetingoperation", "hold")
	m.succeeded(t, "0.3.0")
	runs(t, m, "0.3.0")
}

func upgradeable(t *testing.T, m *lifecycleManager, want string) {
	t.Helper()
	eventually(t, patience, func() error {
		object, err := get("operatorcondition", "-n", namespace, "libretto.v0.2.0")
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Upgradeable" && c["status"] == want {
				m.log(t, "Upgradeable is %s: %s", want, c["message"])
				return nil
			}
		}
		return fmt.Errorf("the OperatorCondition has %v", conditions)
	})
}

// kustomize installs config/default, as the README says, in place of what OLM had installed.
func kustomize(t *testing.T, m *lifecycleManager) {
	kubectl(t, "delete", "namespace", namespace, "greetings", "--ignore-not-found", "--timeout=60s")
	dir := t.TempDir()
	config, err := filepath.Abs(filepath.Join(root, "config"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "config"), os.DirFS(config)); err != nil {
		t.Fatal(err)
	}
	// A tag that the node has, in place of latest.
	text := "resources: [config/default]\nimages: [{name: ghcr.io/libretto-dev/libretto, newTag: v0.1.0}]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--server-side", "--force-conflicts", "-k", dir)
	kubectl(t, "rollout", "status", "-n", namespace, "deployment/libretto-controller-manager", "--timeout=120s")
	m.log(t, "config/default is installed")
	eventually(t, patience, func() error { // until the manager has given the webhook its certificate
		_, err := command(t.Context(), strings.NewReader(greetings), "kubectl", "apply", "--server-side", "--dry-run=server", "-f", "-")
		if err != nil && !strings.Contains(err.Error(), "there is no ServiceAccount") {
			return err
		}
		return nil
	})
	admission(t)
	serveGreetings(t)
	m.log(t, "three Greetings are ready")
	libretto(t, "uninstall", "--yes", "--instances", "Delete")
	kubectl(t, "delete", "-k", dir, "--timeout=120s")
	m.log(t, "config/default is removed")
}

// catalogImage runs the image that the README names, as OLM would, and lets OLM connect to it.
func catalogImage(t *testing.T, m *lifecycleManager) {
	applyText(t, `
apiVersion: v1
kind: Pod
metadata: {name: catalogue, namespace: libretto-system}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: registry-server
    image: ghcr.io/libretto-dev/libretto-catalog:latest
    imagePullPolicy: IfNotPresent
    ports: [{name: grpc, containerPort: 50051}]
    readinessProbe: {exec: {command: [grpc_health_probe, "-addr=:50051"]}, periodSeconds: 1, timeoutSeconds: 5}
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
`)
	kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "-n", namespace, "pod/catalogue")
	pod, err := get("pod", "-n", namespace, "catalogue")
	if err != nil {
		t.Fatal(err)
	}
	ip, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
	applyText(t, fmt.Sprintf(`
apiVersion: operators.coreos.com/v1alpha1
kind: CatalogSource
metadata: {name: catalogue, namespace: olm}
spec: {sourceType: grpc, address: "%s:50051"}
`, ip))
	kubectl(t, "wait", "--for=jsonpath={.status.connectionState.lastObservedState}=READY", "--timeout=120s", "-n", "olm", "catalogsource/catalogue")
	kubectl(t, "delete", "-n", "olm", "catalogsource", "catalogue")
	kubectl(t, "delete", "-n", namespace, "pod", "catalogue")
	m.log(t, "OLM reads the catalogue from its image")
}
