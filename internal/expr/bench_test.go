package expr

import "testing"

var benchSources = []string{
	`self.spec.replicas`, `self.metadata.name + "-config"`, `workload.status.availableReplicas == self.spec.replicas`,
	`self.spec.hosts.map(h, {"host": h, "paths": ["/"]})`, `svc.spec.?clusterIP.orValue("")`,
	`self.spec.items.filter(i, i.count > 1).map(i, i.name)`, `self.spec.public ? self.spec.name : omit()`,
	`string(secret.data.password)`, `has(svc.spec.clusterIP)`, `lists.range(self.spec.replicas)`,
}

// BenchmarkCompile300 compiles what a large definition has: one environment, 300 expressions.
func BenchmarkCompile300(b *testing.B) {
	testEnv(b, Options{})
	b.ReportAllocs()
	for b.Loop() {
		env := testEnv(b, Options{})
		for i := range 300 {
			if _, ps := env.Compile(benchSources[i%len(benchSources)], Any); len(ps) > 0 {
				b.Fatal(ps[0])
			}
		}
	}
}

func BenchmarkWith(b *testing.B) {
	env := testEnv(b, Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := env.With(Variable{Name: "item"}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEval(b *testing.B) {
	env := testEnv(b, Options{})
	vars := testVars(b)
	for _, src := range []string{benchSources[0], benchSources[1], benchSources[2], benchSources[5]} {
		x, ps := env.Compile(src, Any)
		if len(ps) > 0 {
			b.Fatal(ps[0])
		}
		b.Run(src, func(b *testing.B) {
			b.ReportAllocs()
			budget := NewBudget(1<<60, nil)
			for b.Loop() {
				if _, err := x.Eval(vars, budget); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
