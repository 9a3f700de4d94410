package apply_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/testkit"
)

const configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: "1", y: "2"}}`

// A create is one request, and never takes over what is there.
func TestCreateGuard(t *testing.T) {
	f := newFixture(t)
	for _, text := range []string{
		configMap,
		`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}}}`,
		`{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {x: "1"}}`,
	} {
		o := f.desired(text)
		f.recorder.Reset()
		out := f.mustApply(apply.Request{Desired: o}, apply.Created)
		if got := len(f.recorder.Requests()); got != 1 {
			t.Errorf("%d requests to create a %s, want 1", got, o.Kind.Kind)
		}
		if out.Object.GetUID() == "" {
			t.Error("no object in the outcome")
		}
		// Not seen, but there and ours: no write.
		f.recorder.Reset()
		again := f.mustApply(apply.Request{Desired: o}, apply.Unchanged)
		if again.Object.GetUID() != out.Object.GetUID() {
			t.Error("the object that was found is not in the outcome")
		}
	}
	theirs := f.desired(strings.Replace(configMap, "name: a", "name: theirs", 1))
	before := f.create(theirs.Kind, `{apiVersion: v1, kind: ConfigMap, metadata: {name: theirs}, data: {x: theirs}}`)
	_, err := f.writer.Apply(t.Context(), apply.Request{Desired: theirs})
	var conflict *apply.ConflictError
	if !errors.As(err, &conflict) || conflict.Instance {
		t.Fatalf("Apply over a foreign object: %v", err)
	}
	if now := f.live(theirs); now.ResourceVersion != before.GetResourceVersion() {
		t.Error("the foreign object was changed")
	}
}

// An object that went since it was seen is not made anew in silence; nor is another one by its name touched.
func TestKnownObjectGone(t *testing.T) {
	f := newFixture(t)
	o := f.desired(configMap)
	f.mustApply(apply.Request{Desired: o}, apply.Created)
	live := f.live(o)
	newer := f.desired(strings.Replace(configMap, `"1"`, `"3"`, 1))
	if err := f.writer.Delete(t.Context(), apply.Deletion{Kind: o.Kind, Namespace: f.namespace, Name: "a", UID: live.UID}); err != nil {
		t.Fatal(err)
	}
	var stale *apply.StaleError
	if _, err := f.writer.Apply(t.Context(), apply.Request{Desired: newer, Live: live}); !errors.As(err, &stale) {
		t.Errorf("Apply to an object that is gone: %v", err)
	}
	f.mustApply(apply.Request{Desired: o}, apply.Created)
	if _, err := f.writer.Apply(t.Context(), apply.Request{Desired: newer, Live: live}); !errors.As(err, &stale) {
		t.Errorf("Apply to an object that was replaced: %v", err)
	}
	// Deleting what is another object by now is success, and deletes nothing.
	if err := f.writer.Delete(t.Context(), apply.Deletion{Kind: o.Kind, Namespace: f.namespace, Name: "a", UID: live.UID}); err != nil {
		t.Errorf("Delete of an object that was replaced: %v", err)
	}
	f.live(o)
}

func TestAdoption(t *testing.T) {
	f := newFixture(t)
	cases := map[string]struct {
		labels, refs string
		adoption     v1alpha1.Adoption
		dead         bool
		createOnce   bool
		want         apply.Action
		wantOwner    string
		wantInstance bool
	}{
		"never":                    {adoption: v1alpha1.AdoptionNever},
		"default":                  {},
		"if unowned, and it is":    {adoption: v1alpha1.AdoptionIfUnowned, want: apply.Adopted},
		"if unowned, and is not":   {adoption: v1alpha1.AdoptionIfUnowned, refs: `[{apiVersion: v1, kind: ConfigMap, name: boss, uid: BOSS, controller: true}]`, wantOwner: "ConfigMap boss"},
		"force":                    {adoption: v1alpha1.AdoptionForce, refs: `[{apiVersion: v1, kind: ConfigMap, name: boss, uid: BOSS, controller: true}]`, want: apply.Adopted},
		"another instance":         {adoption: v1alpha1.AdoptionForce, labels: `{libretto.dev/instance: other}`, wantOwner: "instance with UID other", wantInstance: true},
		"an instance that is gone": {adoption: v1alpha1.AdoptionIfUnowned, labels: `{libretto.dev/instance: other, libretto.dev/definition: DEFINITION}`, dead: true, want: apply.Adopted},
		"of another definition":    {adoption: v1alpha1.AdoptionForce, labels: `{libretto.dev/instance: other, libretto.dev/definition: elsewhere}`, dead: true, wantOwner: "instance with UID other", wantInstance: true},
		"create once":              {adoption: v1alpha1.AdoptionIfUnowned, createOnce: true, want: apply.Adopted},
	}
	// The garbage collector deletes what has owners that do not exist.
	boss := f.create(kinds["ConfigMap"], `{apiVersion: v1, kind: ConfigMap, metadata: {name: boss}}`)
	self := f.create(kinds["ConfigMap"], `{apiVersion: v1, kind: ConfigMap, metadata: {name: self}}`)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f.t = t
			object := testkit.Unique("cm")
			o := f.desired(`{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + object + `}, data: {x: ours}}`)
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "self", UID: self.GetUID(), Controller: new(true)}})
			text := `{apiVersion: v1, kind: ConfigMap, metadata: {name: ` + object
			if tc.labels != "" {
				text += `, labels: ` + strings.ReplaceAll(tc.labels, "DEFINITION", o.GetLabels()[v1alpha1.LabelDefinition])
			}
			if tc.refs != "" {
				text += `, ownerReferences: ` + strings.ReplaceAll(tc.refs, "BOSS", string(boss.GetUID()))
			}
			f.create(o.Kind, text+`}, data: {x: theirs, z: theirs}}`)
			req := apply.Request{Desired: o, Adoption: tc.adoption, CreateOnce: tc.createOnce, InstanceLives: func(types.UID) bool { return !tc.dead }}
			out, err := f.writer.Apply(t.Context(), req)
			if tc.want == "" {
				var conflict *apply.ConflictError
				if !errors.As(err, &conflict) {
					t.Fatalf("Apply: %v", err)
				}
				if conflict.Owner != tc.wantOwner || conflict.Instance != tc.wantInstance {
					t.Errorf("conflict %+v, want owner %q, instance %v", conflict, tc.wantOwner, tc.wantInstance)
				}
				return
			}
			if err != nil || out.Action != tc.want {
				t.Fatalf("Apply: %s, %v", out.Action, err)
			}
			live := f.live(o)
			want := map[string]any{"x": "ours", "z": "theirs"}
			if tc.createOnce {
				want["x"] = "theirs"
			}
			if diff := cmp.Diff(want, live.Content["data"]); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if n := len(live.OwnerReferences); n != 1 {
				t.Errorf("%d owner references, want ours alone", n)
			}
			req.Live = live
			f.mustApply(req, apply.Unchanged)
		})
	}
}

func TestRecreate(t *testing.T) {
	f := newFixture(t)
	cases := map[string]struct{ before, after, field string }{
		"Deployment": {
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}}}`,
			`{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {replicas: 0, selector: {matchLabels: {a: c}}, template: {metadata: {labels: {a: c}}, spec: {containers: [{name: c, image: x}]}}}}`,
			"spec.selector"},
		"StatefulSet": {
			`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {replicas: 0, serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}}}`,
			`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: a}, spec: {replicas: 0, serviceName: t, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}}}`,
			"spec"},
		"immutable ConfigMap": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, immutable: true, data: {x: "1"}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, immutable: true, data: {x: "2"}}`,
			"data"},
		"Service": {
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None, ports: [{port: 80}]}}`,
			"spec.clusterIPs[0]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f.t = t
			before, after := f.desired(tc.before), f.desired(tc.after)
			f.mustApply(apply.Request{Desired: before}, apply.Created)
			live := f.live(before)
			_, err := f.writer.Apply(t.Context(), apply.Request{Desired: after, Live: live, UpdatePolicy: v1alpha1.UpdatePolicyFail})
			var immutable *apply.ImmutableError
			if !errors.As(err, &immutable) {
				t.Fatalf("Apply: %v", err)
			}
			if diff := cmp.Diff([]string{tc.field}, immutable.Fields); diff != "" {
				t.Errorf("fields (-want +got):\n%s", diff)
			}
			f.mustApply(apply.Request{Desired: after, Live: live, UpdatePolicy: v1alpha1.UpdatePolicyRecreate}, apply.Deleted)
			testkit.Eventually(t, wait, "it is gone", func() error {
				got, err := f.writer.Get(t.Context(), before.Kind, f.namespace, before.GetName())
				if err == nil && got != nil {
					err = errors.New("still there")
				}
				return err
			})
			f.mustApply(apply.Request{Desired: after}, apply.Created)
		})
	}
}

func TestCreateOnce(t *testing.T) {
	f := newFixture(t)
	o := f.desired(configMap)
	f.mustApply(apply.Request{Desired: o, CreateOnce: true}, apply.Created)
	f.patch(o, types.MergePatchType, "somebody", `{data: {x: changed}}`)
	other := f.desired(strings.Replace(configMap, `"1"`, `"3"`, 1))
	f.mustApply(apply.Request{Desired: other, Live: f.live(o), CreateOnce: true}, apply.Unchanged)
}

func TestErrors(t *testing.T) {
	f := newFixture(t)
	gone := testkit.Unique("gone")
	secret := `{apiVersion: v1, kind: Secret, metadata: {name: s}, type: kubernetes.io/tls, stringData: {x: hunter2}}`
	cases := map[string]struct {
		text string
		as   any
		want string
	}{
		"unknown field":       {`{apiVersion: v1, kind: ConfigMap, metadata: {name: b}, dat: {x: "1"}}`, new(*apply.InvalidError), ".dat: field not declared in schema"},
		"wrong type":          {`{apiVersion: v1, kind: ConfigMap, metadata: {name: b}, data: {x: 1}}`, new(*apply.InvalidError), "data.x: expected string"},
		"refused by a rule":   {`{apiVersion: v1, kind: Service, metadata: {name: b}, spec: {ports: [{port: 99999999}]}}`, new(*apply.InvalidError), "spec.ports[0].port"},
		"a bad name":          {`{apiVersion: v1, kind: ConfigMap, metadata: {name: "b_"}}`, new(*apply.InvalidError), "metadata.name"},
		"a missing kind":      {`{apiVersion: nowhere.example.com/v1, kind: Thing, metadata: {name: b}}`, new(*apply.KindMissingError), "no kind Thing of nowhere.example.com/v1"},
		"a missing namespace": {`{apiVersion: v1, kind: ConfigMap, metadata: {name: b, namespace: ` + gone + `}}`, new(*apply.NamespaceMissingError), "namespace " + gone + " does not exist"},
		"a Secret's value":    {secret, new(*apply.InvalidError), "data[tls.crt]"},
		"a Secret's type":     {`{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {x: 4711}}`, new(*apply.InvalidError), ".stringData.x"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f.t = t
			o := f.desired(tc.text)
			_, err := f.writer.Apply(t.Context(), apply.Request{Desired: o})
			if err == nil || !errors.As(err, tc.as) {
				t.Fatalf("Apply: %T %v", err, err)
			}
			if !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "4711") {
				t.Errorf("message %q, want %q in it, and no value", err, tc.want)
			}
		})
	}
}

func TestForbidden(t *testing.T) {
	f := newFixture(t)
	testkit.ServiceAccount(t, testkit.Config(t), f.namespace, "weak")
	weak := f.as(&v1alpha1.ServiceAccountReference{Namespace: f.namespace, Name: "weak"})
	o := f.desired(configMap)
	_, err := weak.Apply(t.Context(), apply.Request{Desired: o})
	var forbidden *apply.ForbiddenError
	if !errors.As(err, &forbidden) {
		t.Fatalf("Apply: %v", err)
	}
	if forbidden.Verb != "patch" || forbidden.Impersonation || forbidden.User != "system:serviceaccount:"+f.namespace+":weak" {
		t.Errorf("%+v", forbidden)
	}
	want := "system:serviceaccount:" + f.namespace + ":weak may not patch configmaps in namespace " + f.namespace + ": give it the right by a Role"
	if err.Error() != want {
		t.Errorf("message\n%s, want\n%s", err, want)
	}
}

func TestNamespaceTerminating(t *testing.T) {
	f := newFixture(t)
	held := f.create(kinds["ConfigMap"], `{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/test]}}`)
	t.Cleanup(func() {
		f.patch(f.desired(`{apiVersion: v1, kind: ConfigMap, metadata: {name: held}}`), types.MergePatchType, "somebody", `{metadata: {finalizers: []}}`)
	})
	_ = held
	namespaces := f.dynamic.Resource(kinds["Namespace"].GVR())
	if err := namespaces.Delete(t.Context(), f.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := f.writer.Apply(t.Context(), apply.Request{Desired: f.desired(configMap)})
	var terminating *apply.NamespaceTerminatingError
	if !errors.As(err, &terminating) {
		t.Fatalf("Apply: %T %v", err, err)
	}
}

// An answer that is lost is unknown, and looking again finds what was done.
func TestLostAnswer(t *testing.T) {
	f := newFixture(t)
	f.recorder.Inject(func(n int, r testkit.Request) testkit.Verdict {
		if n == 1 {
			return testkit.Lose
		}
		return testkit.Pass
	})
	o := f.desired(configMap)
	_, err := f.writer.Apply(t.Context(), apply.Request{Desired: o})
	var transient *apply.TransientError
	if !errors.As(err, &transient) || !transient.Unknown {
		t.Fatalf("Apply: %T %v", err, err)
	}
	f.mustApply(apply.Request{Desired: o}, apply.Unchanged)
}
