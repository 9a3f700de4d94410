package apply_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/internal/apply"
)

const wait = 20 * time.Second

const driftDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, labels: {team: red}, annotations: {note: ours}}
spec:
  replicas: 0
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec:
      containers:
      - name: main
        image: one
        args: [a, b]
        env: [{name: E1, value: one}, {name: E2, value: two}]
        ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]
      - {name: side, image: two}
`

func TestDrift(t *testing.T) {
	f := newFixture(t)
	o := f.desired(driftDeployment)
	f.mustApply(apply.Request{Desired: o}, apply.Created)
	cases := []struct {
		name, manager string
		sort          types.PatchType
		patch         string
		fields        []string
		by            []string
	}{
		{"a changed value", "hand", types.MergePatchType, `{spec: {replicas: 5}}`, []string{"spec.replicas"}, []string{"hand"}},
		{"a changed label", "hand", types.MergePatchType, `{metadata: {labels: {team: blue}}}`, []string{"metadata.labels.team"}, []string{"hand"}},
		{"a removed label", "hand", types.MergePatchType, `{metadata: {labels: {team: null}}}`, []string{"metadata.labels.team"}, nil},
		{"a removed annotation of Libretto's", "hand", types.MergePatchType, `{metadata: {annotations: {libretto.dev/desired: null}}}`,
			[]string{"metadata.annotations.libretto.dev/desired"}, nil},
		{"a changed annotation of Libretto's", "hand", types.MergePatchType, `{metadata: {annotations: {libretto.dev/desired: x}}}`,
			[]string{"metadata.annotations.libretto.dev/desired"}, []string{"hand"}},
		{"a value taken by force", "other", types.ApplyPatchType,
			`{apiVersion: apps/v1, kind: Deployment, spec: {template: {spec: {containers: [{name: main, image: three}]}}}}`,
			[]string{`spec.template.spec.containers[name="main"].image`}, []string{"other"}},
		{"an item of a keyed list removed", "hand", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: main, env: [{name: E2, $patch: delete}]}]}}}}`,
			[]string{`spec.template.spec.containers[name="main"].env[name="E2"]`}, nil},
		{"an item with a defaulted key removed", "hand", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: main, ports: [{containerPort: 80, $patch: delete}]}]}}}}`,
			[]string{`spec.template.spec.containers[name="main"].ports[containerPort=80]`}, nil},
		{"an atomic list", "hand", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: main, args: [a]}]}}}}`,
			[]string{`spec.template.spec.containers[name="main"].args`}, []string{"hand"}},
		{"an item removed", "hand", types.StrategicMergePatchType,
			`{spec: {template: {spec: {containers: [{name: side, $patch: delete}]}}}}`,
			[]string{`spec.template.spec.containers[name="side"]`}, nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			f.t = t
			f.patch(o, tc.sort, tc.manager, tc.patch)
			out := f.mustApply(apply.Request{Desired: o, Live: f.live(o)}, apply.Repaired)
			if diff := cmp.Diff(tc.fields, out.Fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			if tc.by != nil {
				if diff := cmp.Diff(tc.by, out.DriftBy); diff != "" {
					t.Errorf("by (-want +got):\n%s", diff)
				}
			}
			f.recorder.Reset()
			f.mustApply(apply.Request{Desired: o, Live: f.live(o)}, apply.Unchanged)
			if n := len(f.recorder.Requests()); n != 0 {
				t.Errorf("%d requests for an object that is as wanted", n)
			}
		})
	}
}

// What others may change does not count as drift.
func TestNoDrift(t *testing.T) {
	f := newFixture(t)
	cases := map[string]struct {
		text, patch string
	}{
		"defaulted fields": {driftDeployment, `{spec: {revisionHistoryLimit: 3}}`},
		"quantities": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: q}
spec:
  replicas: 0
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: x, resources: {limits: {cpu: 1000m, memory: 1024Mi}, requests: {cpu: "0.5"}}}]}
`, `{metadata: {labels: {foreign: x}}}`},
		"empty values": {`
apiVersion: apps/v1
kind: Deployment
metadata: {name: e, annotations: {empty: ""}}
spec:
  replicas: 0
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {nodeSelector: {}, volumes: [{name: v, emptyDir: {}}], securityContext: {}, containers: [{name: c, image: x, env: [{name: E, value: ""}, {name: F}], args: [], workingDir: ""}]}
`, `{metadata: {labels: {foreign: x}}}`},
		"nulls":      {`{apiVersion: v1, kind: ConfigMap, metadata: {name: nulls}, data: null, binaryData: null}`, `{metadata: {labels: {foreign: x}}}`},
		"stringData": {`{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b}}`, `{metadata: {labels: {foreign: x}}}`},
		"volumeClaimTemplates": {`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: v}
spec:
  replicas: 0
  serviceName: s
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: c, image: x, volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
    status: {}
`, `{spec: {revisionHistoryLimit: 3}}`},
		"a Service": {`
apiVersion: v1
kind: Service
metadata: {name: svc, finalizers: [example.com/keep]}
spec: {selector: {a: b}, ports: [{port: 53, name: tcp}, {port: 53, protocol: UDP, name: udp}, {port: 80, targetPort: http, name: web}]}
`, `{spec: {sessionAffinity: ClientIP}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f.t = t
			o := f.desired(tc.text)
			f.mustApply(apply.Request{Desired: o}, apply.Created)
			f.mustApply(apply.Request{Desired: o, Live: f.live(o)}, apply.Unchanged)
			f.patch(o, types.MergePatchType, "somebody", tc.patch)
			time.Sleep(200 * time.Millisecond) // controllers write the status
			f.mustApply(apply.Request{Desired: o, Live: f.live(o)}, apply.Unchanged)
			if o.Kind.Kind == "Service" {
				f.patch(o, types.MergePatchType, "somebody", `{metadata: {finalizers: []}}`)
			}
		})
	}
}

// A Secret written with stringData is watched like any other.
func TestDriftOfStringData(t *testing.T) {
	f := newFixture(t)
	o := f.desired(`{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b}}`)
	f.mustApply(apply.Request{Desired: o}, apply.Created)
	f.patch(o, types.MergePatchType, "hand", `{data: {a: Y2hhbmdlZA==}}`)
	out := f.mustApply(apply.Request{Desired: o, Live: f.live(o)}, apply.Repaired)
	if diff := cmp.Diff([]string{"hand"}, out.DriftBy); diff != "" {
		t.Errorf("by (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"a": "Yg=="}, f.live(o).Content["data"]); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}
