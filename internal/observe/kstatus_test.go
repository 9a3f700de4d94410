package observe_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/libretto-dev/libretto/internal/observe"
)

func TestKStatus(t *testing.T) {
	type want struct {
		Ready, Failed bool
		Message       string
	}
	cases := map[string]struct {
		object string
		want   want
	}{
		"a kind without a status": {`{apiVersion: v1, kind: ConfigMap}`, want{Ready: true}},
		"deleting": {`{apiVersion: v1, kind: ConfigMap, metadata: {deletionTimestamp: "2026-01-01T00:00:00Z"}}`,
			want{Message: "it is being deleted"}},
		"an old generation": {`{apiVersion: example.com/v1, kind: Thing, metadata: {generation: 2}, status: {observedGeneration: 1, conditions: [{type: Ready, status: "True"}]}}`,
			want{Message: "its controller has not seen the newest generation yet"}},
		"an old condition": {`{apiVersion: example.com/v1, kind: Thing, metadata: {generation: 2}, status: {conditions: [{type: Ready, status: "True", observedGeneration: 1}]}}`,
			want{Message: "its condition Ready is True"}},
		"Ready": {`{apiVersion: example.com/v1, kind: Thing, status: {conditions: [{type: Ready, status: "True"}]}}`, want{Ready: true}},
		"not Ready": {`{apiVersion: example.com/v1, kind: Thing, status: {conditions: [{type: Ready, status: "False", reason: Waiting, message: for the rain}]}}`,
			want{Message: "for the rain"}},
		"Reconciling": {`{apiVersion: example.com/v1, kind: Thing, status: {conditions: [{type: Reconciling, status: "True", reason: AtWork}, {type: Ready, status: "True"}]}}`,
			want{Message: "AtWork"}},
		"Stalled": {`{apiVersion: example.com/v1, kind: Thing, status: {conditions: [{type: Stalled, status: "True", message: act}]}}`,
			want{Failed: true, Message: "act"}},
		"a Deployment that nobody has seen": {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 1}}`,
			want{Message: "its controller has not seen it yet"}},
		"a Deployment at work": {`{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 1}, spec: {replicas: 3}, status: {observedGeneration: 1, replicas: 3, updatedReplicas: 3, availableReplicas: 1}}`,
			want{Message: "1 of 3 replicas available"}},
		"a Deployment rolling": {`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3}, status: {observedGeneration: 1, replicas: 4, updatedReplicas: 2, availableReplicas: 3}}`,
			want{Message: "2 of 3 replicas updated"}},
		"a Deployment with old pods": {`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3}, status: {observedGeneration: 1, replicas: 4, updatedReplicas: 3, availableReplicas: 3}}`,
			want{Message: "1 old replicas have to go"}},
		"a Deployment that is ready": {`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 3}, status: {observedGeneration: 1, replicas: 3, updatedReplicas: 3, availableReplicas: 3}}`,
			want{Ready: true}},
		"a Deployment with no replicas": {`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 0}, status: {observedGeneration: 1}}`, want{Ready: true}},
		"a Deployment out of time": {`{apiVersion: apps/v1, kind: Deployment, status: {observedGeneration: 1, conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: too slow}]}}`,
			want{Failed: true, Message: "too slow"}},
		"a StatefulSet at work": {`{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 3}, status: {observedGeneration: 1, replicas: 3, readyReplicas: 2}}`,
			want{Message: "2 of 3 replicas ready"}},
		"a StatefulSet with a partition": {`{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 3, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 2}}}, status: {observedGeneration: 1, replicas: 3, readyReplicas: 3, updatedReplicas: 1, currentRevision: a, updateRevision: b}}`,
			want{Ready: true}},
		"a StatefulSet rolling": {`{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 2}, status: {observedGeneration: 1, replicas: 2, readyReplicas: 2, updatedReplicas: 1, currentRevision: a, updateRevision: b}}`,
			want{Message: "1 of 2 replicas updated"}},
		"a DaemonSet at work": {`{apiVersion: apps/v1, kind: DaemonSet, status: {observedGeneration: 1, desiredNumberScheduled: 2, currentNumberScheduled: 2, updatedNumberScheduled: 2, numberAvailable: 1}}`,
			want{Message: "1 of 2 pods available"}},
		"a Pod that cannot pull": {`{apiVersion: v1, kind: Pod, status: {phase: Pending, containerStatuses: [{name: app, state: {waiting: {reason: ImagePullBackOff}}}]}}`,
			want{Message: "container app waits: ImagePullBackOff"}},
		"a Pod that is done":    {`{apiVersion: v1, kind: Pod, status: {phase: Succeeded}}`, want{Ready: true}},
		"a Pod that has failed": {`{apiVersion: v1, kind: Pod, status: {phase: Failed, message: evicted}}`, want{Failed: true, Message: "evicted"}},
		"a Pod that is ready":   {`{apiVersion: v1, kind: Pod, status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`, want{Ready: true}},
		"a claim":               {`{apiVersion: v1, kind: PersistentVolumeClaim, status: {phase: Pending}}`, want{Message: "it is not bound to a volume"}},
		"a lost claim":          {`{apiVersion: v1, kind: PersistentVolumeClaim, status: {phase: Lost}}`, want{Failed: true, Message: "its volume is lost"}},
		"a Service":             {`{apiVersion: v1, kind: Service, spec: {type: ClusterIP}}`, want{Ready: true}},
		"a load balancer":       {`{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}}`, want{Message: "its load balancer has no address"}},
		"a Job at work": {`{apiVersion: batch/v1, kind: Job, spec: {completions: 2}, status: {succeeded: 1, active: 1}}`,
			want{Message: "1 of 2 completions, 1 pods active, 0 failed"}},
		"a Job that is done":    {`{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: Complete, status: "True"}]}}`, want{Ready: true}},
		"a Job that has failed": {`{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: Failed, status: "True", message: no luck}]}}`, want{Failed: true, Message: "no luck"}},
		"a CRD":                 {`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, status: {conditions: [{type: Established, status: "True"}]}}`, want{Ready: true}},
		"a CRD with taken names": {`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, status: {conditions: [{type: NamesAccepted, status: "False", message: taken}]}}`,
			want{Failed: true, Message: "taken"}},
		"a budget": {`{apiVersion: policy/v1, kind: PodDisruptionBudget, status: {observedGeneration: 1, currentHealthy: 1, desiredHealthy: 2}}`,
			want{Message: "1 of 2 pods healthy"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.object), &obj.Object); err != nil {
				t.Fatal(err)
			}
			var got want
			got.Ready, got.Message, got.Failed = observe.KStatus(obj)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("KStatus (-want +got):\n%s", diff)
			}
		})
	}
}
