package expr

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/libretto-dev/libretto/internal/schema"
)

const webApp = `{"type":"object","properties":{
 "spec":{"type":"object","properties":{
  "name":{"type":"string"},"replicas":{"type":"integer"},"ratio":{"type":"number"},"public":{"type":"boolean"},
  "port":{"x-kubernetes-int-or-string":true},"hosts":{"type":"array","items":{"type":"string"}},
  "labels":{"type":"object","additionalProperties":{"type":"string"}},
  "values":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
  "since":{"type":"string","format":"date-time"},"grace":{"type":"string","format":"duration"},
  "my-name":{"type":"string"},"namespace":{"type":"string"},
  "size":{"type":"string"},
  "items":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"},"count":{"type":"integer"}}}},
  "container":{"type":"object","properties":{"name":{"type":"string"},"image":{"type":"string"}}}
 }}}}`

func testEnv(t testing.TB, opts Options) *Env {
	t.Helper()
	var props apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal([]byte(webApp), &props); err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Spec.Names.Kind = "WebApp"
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &props}}}
	self, err := schema.FromCRDVersion(crd, "v1")
	if err != nil {
		t.Fatal(err)
	}
	env, err := NewEnv([]Variable{
		{Name: "self", Schema: self},
		{Name: "workload", Schema: builtin(t, "apps", "Deployment"), Pending: true},
		{Name: "svc", Schema: builtin(t, "", "Service"), Pending: true},
		{Name: "pods", Schema: builtin(t, "", "Pod"), List: true, Pending: true},
		{Name: "tls", Schema: builtin(t, "", "Secret"), Optional: true, Pending: true},
		{Name: "secret", Schema: builtin(t, "", "Secret"), Pending: true},
		{Name: "other", Pending: true},
	}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func builtin(t testing.TB, group, kind string) *schema.Schema {
	t.Helper()
	k, err := schema.Embedded().Kind(runtimeschema.GroupVersionKind{Group: group, Version: "v1", Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	return k.Schema
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	var v map[string]any
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return plain(v).(map[string]any)
}

// plain makes int64 and float64 of numbers.
func plain(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	}
	return v
}

func testVars(t testing.TB) map[string]any {
	t.Helper()
	return map[string]any{
		"self": object(t, `{"apiVersion":"example.com/v1","kind":"WebApp","metadata":{"name":"shop","namespace":"prod","creationTimestamp":"2026-01-02T03:04:05Z"},
		 "spec":{"name":"shop","replicas":3,"ratio":2,"public":true,"port":80,"hosts":["a.example","b.example"],"labels":{"team":"x","my-label":"y"},
		 "values":{"deep":{"n":1}},"since":"2026-01-02T03:04:05Z","grace":"90m","my-name":"dash","namespace":"inner","size":"1Gi",
		 "items":[{"name":"one","count":1},{"name":"two","count":2}],"container":{"name":"c","image":"i"}}}`),
		"workload": object(t, `{"metadata":{"name":"w"},"spec":{"replicas":3},"status":{"availableReplicas":3}}`),
		"svc":      object(t, `{"metadata":{"name":"s"},"spec":{"ports":[{"name":"http","port":80}]}}`),
		"pods":     []any{object(t, `{"metadata":{"name":"p0"},"status":{"podIP":"10.0.0.1"}}`), object(t, `{"metadata":{"name":"p1"}}`)},
		"secret":   object(t, `{"data":{"password":"czNjcmV0"}}`),
		"other":    object(t, `{"a":{"b":1}}`),
	}
}

func TestEval(t *testing.T) {
	env := testEnv(t, Options{AllowRandom: true})
	vars := testVars(t)
	before, _ := json.Marshal(vars)
	for src, want := range map[string]any{
		`self.spec.replicas`:                                      int64(3),
		`self.spec.replicas + 1`:                                  int64(4),
		`self.spec.ratio / 4.0`:                                   0.5,
		`self.spec.port`:                                          int64(80),
		`self.metadata.name + "-config"`:                          "shop-config",
		`self.metadata.namespace`:                                 "prod",
		`self.spec.namespace`:                                     "inner",
		"self.spec.`my-name`":                                     "dash",
		`self.spec.my__dash__name`:                                "dash",
		`self.spec.labels["my-label"]`:                            "y",
		`self.spec.labels`:                                        map[string]any{"team": "x", "my-label": "y"},
		`self.spec.values.deep.n`:                                 int64(1),
		`self.spec.since`:                                         "2026-01-02T03:04:05Z",
		`self.spec.grace`:                                         "1h30m0s",
		`self.spec.grace > duration("1h")`:                        true,
		`self.spec.hosts.map(h, h.upperAscii())`:                  []any{"A.EXAMPLE", "B.EXAMPLE"},
		`self.spec.items.filter(i, i.count > 1).map(i, i.name)`:   []any{"two"},
		`self.spec.hosts + ["c"]`:                                 []any{"a.example", "b.example", "c"},
		`{"name": self.spec.name, "port": 80, "none": omit()}`:    map[string]any{"name": "shop", "port": int64(80)},
		`["a", omit(), "b"]`:                                      []any{"a", "b"},
		`self.spec.public ? omit() : self.spec.name`:              Omit{},
		`self.spec.labels.?nope`:                                  Omit{},
		`self.spec.?name`:                                         "shop",
		`self.spec.?values.nothing.orValue("x")`:                  "x",
		`tls.hasValue()`:                                          false,
		`tls.?metadata.?name.orValue("none")`:                     "none",
		`secret.data.password`:                                    "czNjcmV0",
		`string(secret.data.password)`:                            "s3cret",
		`has(workload.status.availableReplicas)`:                  true,
		`has(svc.spec.clusterIP)`:                                 false,
		`svc.spec.ports.filter(p, p.name == "http")[0].port`:      int64(80),
		`pods.map(p, p.metadata.name)`:                            []any{"p0", "p1"},
		`lists.range(3)`:                                          []any{int64(0), int64(1), int64(2)},
		`json(self.spec.labels)`:                                  `{"my-label":"y","team":"x"}`,
		`hash.sha256("a")`:                                        "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
		`hash.fnv("a")`:                                           "e40c292c",
		`size(random.string(12))`:                                 int64(12),
		`random.password(8) != random.password(8)`:                true,
		`quantity(self.spec.size).isGreaterThan(quantity("1Mi"))`: true,
		`quantity("1Gi").add(quantity("1Gi"))`:                    "2Gi",
		`self.spec.labels == {"team": "x", "my-label": "y"}`:      true,
		`{"team": "x", "my-label": "y"} == self.spec.labels`:      true,
		`"a.example" in self.spec.hosts`:                          true,
		`self.spec.labels.map(k, k)`:                              []any{"my-label", "team"},
		`self.spec.labels.transformList(k, v, k + "=" + v)`:       []any{"my-label=y", "team=x"},
		`cel.bind(r, self.spec.replicas, r * r)`:                  int64(9),
		`base64.encode(b"a")`:                                     "YQ==",
		`other.a.b`:                                               int64(1),
		`null`:                                                    nil,
		`self.spec.items`:                                         []any{map[string]any{"name": "one", "count": int64(1)}, map[string]any{"name": "two", "count": int64(2)}},
		`math.greatest(self.spec.replicas, 5)`:                    int64(5),
		`sets.contains(self.spec.hosts, ["a.example"])`:           true,
		`self.spec.hosts.join(",")`:                               "a.example,b.example",
		`"%s-%d".format([self.spec.name, self.spec.replicas])`:    "shop-3",
		`self.spec.hosts.map(h, [h, h]).flatten().distinct().sort().reverse()`:     []any{"b.example", "a.example"},
		`self.spec.name.split("h").join("-")`:                                      "s-op",
		`self.spec.name.find("[a-m]+")`:                                            "h",
		`self.spec.items.sortBy(i, -i.count)[0].name`:                              "two",
		`lists.range(self.spec.replicas).map(i, self.spec.name + "-" + string(i))`: []any{"shop-0", "shop-1", "shop-2"},
		`cidr("10.0.0.0/8").containsIP("10.1.1.1")`:                                true,
		`ip("10.0.0.1")`:          "10.0.0.1",
		`semver("1.2.3").major()`: int64(1),
		`[1, "a"]`:                []any{int64(1), "a"},
		`pods.exists(p, has(p.status.podIP) && p.status.podIP == "10.0.0.1")`: true,
	} {
		t.Run(src, func(t *testing.T) {
			x, ps := env.Compile(src, Any)
			if len(ps) > 0 {
				t.Fatal(ps[0])
			}
			budget := NewBudget(0, nil)
			got, err := x.Eval(vars, budget)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if IsOmit(got) && !x.MayOmit() {
				t.Error("MayOmit is false")
			}
		})
	}
	if after, _ := json.Marshal(vars); string(before) != string(after) {
		t.Error("the variables were changed")
	}
}

func TestEvalErrors(t *testing.T) {
	env := testEnv(t, Options{})
	bound := errors.New("bound")
	vars := testVars(t)
	for src, want := range map[string]any{
		`svc.spec.clusterIP`:                              &PendingError{Variable: "svc", Path: []string{"spec", "clusterIP"}},
		`"x" + svc.status.loadBalancer.ingress[0].ip`:     &PendingError{Variable: "svc", Path: []string{"status"}},
		`svc.spec.ports[1].port`:                          &PendingError{Variable: "svc", Path: []string{"spec", "ports", "[1]"}},
		`svc.spec.ports.filter(p, p.name == "x")[0].port`: &PendingError{Variable: "svc", Path: []string{"spec", "ports"}},
		`pods.map(p, p.status.podIP)`:                     &PendingError{Variable: "pods", Path: []string{"[*]", "status"}},
		`other.a.c`:                                       &PendingError{Variable: "other", Path: []string{"a", "c"}},
		`other["x"]`:                                      &PendingError{Variable: "other", Path: []string{"x"}},
		`self.spec.labels.nope`:                           &EvalError{Message: "self.spec.labels.nope is absent", Hint: "write self.spec.labels.?nope.orValue(…), or give it a default in the schema"},
		`self.spec.hosts[7]`:                              &EvalError{Message: "self.spec.hosts[7] is absent", Hint: "write self.spec.hosts[?7].orValue(…), or give it a default in the schema"},
		`self.spec.labels.nope == svc.spec.clusterIP`:     &EvalError{Message: "self.spec.labels.nope is absent", Hint: "write self.spec.labels.?nope.orValue(…), or give it a default in the schema"},
		`1 / (self.spec.replicas - 3)`:                    &EvalError{Message: "division by zero", Hint: "test the divisor first: n == 0 ? 0 : m / n"},
		`self.spec.values.deep + 1`:                       &EvalError{Message: "a value has a type that the expression cannot work with", Hint: "convert it: string(…), int(…), double(…); or test it first: type(x) == string"},
	} {
		t.Run(src, func(t *testing.T) {
			x, ps := env.Compile(src, Any)
			if len(ps) > 0 {
				t.Fatal(ps[0])
			}
			_, err := x.Eval(vars, nil)
			switch want := want.(type) {
			case *PendingError:
				want.Source = src
			case *EvalError:
				want.Source = src
			}
			if diff := cmp.Diff(want, any(err)); diff != "" {
				t.Error(diff)
			}
		})
	}
	x, _ := env.Compile(`workload.metadata.name`, Any)
	var pending *PendingError
	if _, err := x.Eval(nil, nil); !errors.As(err, &pending) || pending.Variable != "workload" || len(pending.Path) > 0 {
		t.Errorf("unbound: %v", err)
	}
	if _, err := x.Eval(map[string]any{"workload": map[string]any{}}, nil); !errors.As(err, &pending) || pending.Path[0] != "metadata" {
		t.Errorf("empty: %v", err)
	}
	if _, err := x.Eval(map[string]any{"workload": bound}, nil); !errors.Is(err, bound) {
		t.Errorf("bound to an error: %v", err)
	}
}

func TestLimits(t *testing.T) {
	env, err := NewEnv([]Variable{{Name: "n", Schema: schema.Scalar(schema.Integer, "")}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	x, ps := env.Compile(`lists.range(n).map(a, lists.range(n).map(b, a + b))`, Any)
	if len(ps) > 0 {
		t.Fatal(ps[0])
	}
	vars := map[string]any{"n": int64(5000)}
	var cost *CostError
	if _, err := x.Eval(vars, NewBudget(0, nil)); !errors.As(err, &cost) || cost.Instance {
		t.Errorf("expensive: %v", err)
	}
	budget := NewBudget(100, nil)
	vars["n"] = int64(10)
	if _, err := x.Eval(vars, budget); err != nil {
		t.Error(err)
	}
	if _, err := x.Eval(vars, budget); !errors.As(err, &cost) || !cost.Instance {
		t.Errorf("spent: %v", err)
	}
	done := make(chan struct{})
	close(done)
	var interrupted *InterruptedError
	vars["n"] = int64(500)
	if _, err := x.Eval(vars, NewBudget(0, done)); !errors.As(err, &interrupted) {
		t.Errorf("interrupted: %v", err)
	}
	list := testEnv(t, Options{})
	if _, ps := list.Compile(`self.spec.hosts.all(a, self.spec.hosts.all(b, self.spec.hosts.all(c, self.spec.hosts.all(d, a+b+c+d != "")))) `, Bool); len(ps) != 1 || ps[0].Message != "the expression may cost too much" {
		t.Errorf("estimate: %v", ps)
	}
}

func TestProblems(t *testing.T) {
	env := testEnv(t, Options{})
	deployment := builtin(t, "apps", "Deployment")
	spec, _ := deployment.Field("spec")
	replicas, _ := spec.Field("replicas")
	text := schema.Scalar(schema.String, "")
	podSpec, _ := builtin(t, "", "Pod").Field("spec")
	containers, _ := podSpec.Field("containers")
	for _, c := range []struct {
		src  string
		want Want
		p    Problem
	}{
		{`slef.spec`, Any, Problem{Message: "there is no resource, external or variable named slef", Hint: "did you mean self?"}},
		{`self.spec.replica`, Any, Problem{Message: "there is no field replica in object (WebApp.spec)", Hint: "did you mean replicas?", Offset: 9}},
		{`pods.map(p, p.status.podIp)`, Any, Problem{Message: "there is no field podIp in object (PodStatus)", Hint: "did you mean podIP?", Offset: 20}},
		{`self.spec.name + 1`, Any, Problem{Message: "+ cannot be used here", Found: "string and integer", Hint: "turn the other side into a string: string(…)", Offset: 15}},
		{`self.spec.?name + "x"`, Any, Problem{Message: "+ cannot be used here", Found: "optional string and string", Hint: "an optional needs orValue(…) before it is used", Offset: 16}},
		{`self.spec.?name.orValue(1)`, Any, Problem{Message: "orValue(…) cannot be used here", Found: "optional string and integer",
			Hint: "both must have the same type; to make the optional a string first: .optMap(v, string(v)).orValue(…)", Offset: 23}},
		{`"ä" + 1`, Any, Problem{Message: "+ cannot be used here", Found: "string and integer", Hint: "turn the other side into a string: string(…)", Offset: 5}},
		{`self.spec.hosts.joinn()`, Any, Problem{Message: "there is no function joinn", Hint: "did you mean join?", Offset: 21}},
		{`jsn(self)`, Any, Problem{Message: "there is no function jsn", Hint: "did you mean json?", Offset: 3}},
		{`self.spec.replicas`, Bool, Problem{Message: "the expression has the wrong type", Expected: "boolean", Found: "integer", Hint: "compare it with something, as in x == 'a' or has(x.y)"}},
		{`self.spec.name`, For(replicas), Problem{Message: "the expression has the wrong type", Expected: "integer", Found: "string", Hint: "use int(…)", Offset: 9}},
		{`self.spec.replicas`, For(text), Problem{Message: "the expression has the wrong type", Expected: "string", Found: "integer", Hint: "use string(…)", Offset: 9}},
		{`self.spec.public ? "1" : 2`, For(text), Problem{Message: "? : cannot be used here", Found: "string and integer", Hint: "both branches must have the same type", Offset: 17}},
		{`secret.data.password`, For(text), Problem{Message: "the expression has the wrong type", Expected: "string", Found: "bytes", Hint: "use string(…) for the text itself, or base64.encode(…)", Offset: 11}},
		{`self.spec.hosts`, Text, Problem{Message: "the expression has the wrong type", Expected: "something that can stand within a text", Found: "list of string", Hint: "use join(', ') or json(…)"}},
		{`[{"nam": "a"}]`, For(containers), Problem{Message: "there is no field nam in object (Container)", Hint: "did you mean name?", Offset: 2}},
		{`[self.spec.items[0]]`, For(containers), Problem{Message: "there is no field count in object (Container)", Found: "object (WebApp.spec.items[])", Hint: "it has args, command, env, envFrom, image, imagePullPolicy, lifecycle, livenessProbe, name, ports and others", Offset: 16}},
		{`random.string(3)`, Any, Problem{Message: "random.string yields something else every time, so it would change the object every time", Hint: "set createOnce: true on the resource, so that it is made once and kept", Offset: 13}},
		{``, Any, Problem{Message: "the expression is empty"}},
		{`self.spec.replicas = 3`, Bool, Problem{Message: "syntax error: token recognition error at: '= '", Offset: 19}},
	} {
		t.Run(c.src, func(t *testing.T) {
			x, ps := env.Compile(c.src, c.want)
			if x != nil || len(ps) == 0 {
				t.Fatal("it compiles")
			}
			if diff := cmp.Diff(c.p, *ps[0]); diff != "" {
				t.Error(diff)
			}
		})
	}
	if _, ps := env.Compile(`self.spec.a + self.spec.b`, Any); len(ps) != 2 {
		t.Errorf("problems: %v", ps)
	}
}

func TestAssignable(t *testing.T) {
	env := testEnv(t, Options{})
	pod, _ := builtin(t, "", "Pod").Field("spec")
	containers, _ := pod.Field("containers")
	for src, to := range map[string]*schema.Schema{
		`self.spec.replicas`:          schema.Scalar(schema.Number, ""),
		`self.spec.replicas + 0`:      schema.Scalar(schema.IntOrString, ""),
		`self.spec.port`:              schema.Scalar(schema.Integer, ""),
		`self.spec.since`:             schema.Scalar(schema.String, ""),
		`workload.spec.template.spec`: pod,
		`[self.spec.container]`:       containers,
		`[{"name": "a", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]`: containers,
		`self.spec.?name`: schema.Scalar(schema.String, ""),
		`self.spec.public ? self.spec.name : omit()`: schema.Scalar(schema.String, ""),
		`secret.data`: schema.MapOf(schema.Scalar(schema.String, schema.FormatByte)),
	} {
		x, ps := env.Compile(src, For(to))
		if len(ps) > 0 {
			t.Errorf("%s: %v", src, ps[0])
			continue
		}
		_ = x.Schema()
	}
}

func TestRefs(t *testing.T) {
	env := testEnv(t, Options{})
	for src, want := range map[string][]string{
		`self.spec.replicas + workload.status.availableReplicas`: {"self.spec.replicas", "workload.status.availableReplicas"},
		`pods.filter(p, p.status.phase == "Running").size()`:     {"pods.*", "pods.*.status.phase"},
		`self.spec.items.map(svc2, svc2.name)`:                   {"self.spec.items.*.name"},
		`self.spec.items.map(i, 1)`:                              {"self.spec.items.*"},
		`has(svc.spec.clusterIP) ? svc.spec.?clusterIP : omit()`: {"svc.spec.clusterIP"},
		`self.spec.labels["a"]`:                                  {"self.spec.labels.a"},
		`cel.bind(m, svc.metadata, m.name)`:                      {"svc.metadata.name"},
		`self.spec.labels[self.spec.name]`:                       {"self.spec.labels.*", "self.spec.name"},
		`json(tls)`:                                              {"tls"},
		`svc.spec.ports[0].port`:                                 {"svc.spec.ports.*.port"},
	} {
		x, ps := env.Compile(src, Any)
		if len(ps) > 0 {
			t.Errorf("%s: %v", src, ps[0])
			continue
		}
		var got []string
		for _, r := range x.Refs() {
			got = append(got, strings.Join(append([]string{r.Variable}, r.Path...), "."))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", src, diff)
		}
	}
}

func TestWith(t *testing.T) {
	env := testEnv(t, Options{})
	in, ps := env.Compile(`self.spec.items`, List)
	if len(ps) > 0 {
		t.Fatal(ps[0])
	}
	inner, err := env.With(Variable{Name: "item", Schema: in.Schema().Items()})
	if err != nil {
		t.Fatal(err)
	}
	if _, ps := inner.Compile(`item.count + 1`, For(schema.Scalar(schema.Integer, ""))); len(ps) > 0 {
		t.Error(ps[0])
	}
	if _, ps := inner.Compile(`item.cuont`, Any); len(ps) != 1 || ps[0].Hint != "did you mean count?" {
		t.Error(ps)
	}
	if _, err := inner.With(Variable{Name: "self"}); err == nil {
		t.Error("a name twice")
	}
}
