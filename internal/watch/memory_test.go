package watch

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/libretto-dev/libretto/internal/program"
)

var deployments = program.Kind{GroupVersionKind: runtimeschema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Resource: "deployments", Namespaced: true}

// deploymentJSON is a Deployment as a watch brings it: 5 KB.
func deploymentJSON(i int) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"annotations":{"deployment.kubernetes.io/revision":"1","libretto.dev/definition-name":"webapps.example.com","libretto.dev/desired":"%064d","libretto.dev/owner":"team/app-%[1]d","libretto.dev/resource":"workload","libretto.dev/wave":"1"},"creationTimestamp":"2026-01-01T00:00:00Z","generation":1,"labels":{"libretto.dev/definition":"abcdef0123456789","libretto.dev/instance":"00000000-0000-0000-0000-%012[1]d"},"managedFields":[{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:libretto.dev/definition-name":{},"f:libretto.dev/desired":{},"f:libretto.dev/owner":{},"f:libretto.dev/resource":{},"f:libretto.dev/wave":{}},"f:labels":{"f:libretto.dev/definition":{},"f:libretto.dev/instance":{}},"f:ownerReferences":{"k:{\"uid\":\"00000000-0000-0000-0000-%012[1]d\"}":{}}},"f:spec":{"f:replicas":{},"f:selector":{},"f:template":{"f:metadata":{"f:labels":{"f:app":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:env":{"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:name":{},"f:ports":{"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}},"f:resources":{"f:limits":{"f:memory":{}},"f:requests":{"f:cpu":{},"f:memory":{}}}}}}}}},"manager":"libretto","operation":"Apply","time":"2026-01-01T00:00:00Z"},{"apiVersion":"apps/v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:deployment.kubernetes.io/revision":{}}},"f:status":{"f:availableReplicas":{},"f:conditions":{".":{},"k:{\"type\":\"Available\"}":{".":{},"f:lastTransitionTime":{},"f:lastUpdateTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}},"f:observedGeneration":{},"f:readyReplicas":{},"f:replicas":{},"f:updatedReplicas":{}}},"manager":"kube-controller-manager","operation":"Update","subresource":"status","time":"2026-01-01T00:00:05Z"}],"name":"app-%[1]d","namespace":"team","ownerReferences":[{"apiVersion":"example.com/v1","controller":true,"kind":"WebApp","name":"app-%[1]d","uid":"00000000-0000-0000-0000-%012[1]d"}],"resourceVersion":"%[1]d","uid":"10000000-0000-0000-0000-%012[1]d"},"spec":{"progressDeadlineSeconds":600,"replicas":2,"revisionHistoryLimit":10,"selector":{"matchLabels":{"app":"app-%[1]d"}},"strategy":{"rollingUpdate":{"maxSurge":"25%%","maxUnavailable":"25%%"},"type":"RollingUpdate"},"template":{"metadata":{"labels":{"app":"app-%[1]d"}},"spec":{"containers":[{"env":[{"name":"A","value":"b"}],"image":"registry.example.com/app:1.0","imagePullPolicy":"IfNotPresent","name":"app","ports":[{"containerPort":8080,"protocol":"TCP"}],"resources":{"limits":{"memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File"}],"dnsPolicy":"ClusterFirst","restartPolicy":"Always","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}}},"status":{"availableReplicas":2,"conditions":[{"lastTransitionTime":"2026-01-01T00:00:05Z","lastUpdateTime":"2026-01-01T00:00:05Z","message":"Deployment has minimum availability.","reason":"MinimumReplicasAvailable","status":"True","type":"Available"},{"lastTransitionTime":"2026-01-01T00:00:00Z","lastUpdateTime":"2026-01-01T00:00:05Z","message":"ReplicaSet \"app-%[1]d-5d4f8c7b9\" has successfully progressed.","reason":"NewReplicaSetAvailable","status":"True","type":"Progressing"}],"observedGeneration":1,"readyReplicas":2,"replicas":2,"updatedReplicas":2}}`, i)
}

func decoded(t testing.TB, i int) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal(deploymentJSON(i), &obj.Object); err != nil {
		t.Fatal(err)
	}
	return obj
}

// 30,000 children, of which readiness and two fields are read, take at most 150 MB: measured with fewer.
func TestMemory(t *testing.T) {
	const n, limit = 3_000, 3_000 * (150 << 20) / 30_000
	if unsafe.Sizeof(uintptr(0)) < 8 {
		t.Skip("sizes are those of a 64-bit machine")
	}
	c := newCollection(newProjector(deployments, [][]string{{"spec", "replicas"}, {"metadata", "name"}, {"status", "readyReplicas"}}), func(Event) {})
	before := heap()
	for i := range n {
		_ = c.Add(decoded(t, i))
	}
	used := heap() - before
	t.Logf("%d Deployments: %d KB, %d bytes each", n, used>>10, used/n)
	if used > limit {
		t.Errorf("%d bytes, want at most %d", used, limit)
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // fits
}

func BenchmarkTransform(b *testing.B) {
	p := newProjector(deployments, [][]string{{"spec", "replicas"}})
	obj := decoded(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		p.object(obj)
	}
}
