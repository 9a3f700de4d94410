package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
)

// steps compiles the steps of an operation.
func (o *operationCompiler) steps(in []v1alpha1.Step) []*program.Step {
	names := o.stepNames(len(in), o.path+".steps", func(i int) (v1alpha1.Name, *v1alpha1.Action) { return in[i].Name, &in[i].Action })
	var out []*program.Step
	envs := make([]*expr.Env, len(in))
	for i := range in {
		path := diag.Index(o.path+".steps", i)
		step, env := o.step(&in[i], names[i], path)
		out, envs[i] = append(out, step), env
		o.before = append(o.before, names[i])
	}
	for i := range in { // undo steps may read what all steps yield; those of a forEach are done for each item
		out[i].Undo = o.cleanup(in[i].Undo, diag.Index(o.path+".steps", i)+".undo", envs[i], false)
	}
	return out
}

// stepNames gives each step its name, and checks that no two have the same.
func (o *operationCompiler) stepNames(n int, path string, of func(i int) (v1alpha1.Name, *v1alpha1.Action)) []string {
	taken := map[string]bool{}
	for i := range n {
		name, _ := of(i)
		if name == "" {
			continue
		}
		if taken[string(name)] {
			o.add(diag.Diagnostic{Path: diag.Index(path, i) + ".name", Message: fmt.Sprintf("there are two steps %q", name), Hint: "rename one"})
		}
		if !isName(string(name)) {
			o.add(diag.Diagnostic{Path: diag.Index(path, i) + ".name", Message: "should match '" + namePattern.String() + "'", Found: fmt.Sprintf("%q", name)})
		}
		taken[string(name)] = true
	}
	return named(n, of)
}

// StepNames are the names of steps: those that they are given, and for the others what they do.
func StepNames(steps []v1alpha1.Step) []string {
	return named(len(steps), func(i int) (v1alpha1.Name, *v1alpha1.Action) { return steps[i].Name, &steps[i].Action })
}

func named(n int, of func(i int) (v1alpha1.Name, *v1alpha1.Action)) []string {
	names := make([]string, n)
	taken := map[string]bool{}
	for i := range n {
		name, _ := of(i)
		names[i] = string(name)
		taken[names[i]] = true
	}
	for i := range n {
		if names[i] != "" {
			continue
		}
		_, action := of(i)
		base := cmp.Or(actionOf(action), "step")
		name := base
		for k := 2; taken[name]; k++ {
			name = fmt.Sprintf("%s%d", base, k)
		}
		names[i] = name
		taken[name] = true
	}
	return names
}

// actionOf is the name of an action.
func actionOf(a *v1alpha1.Action) string {
	for _, one := range actions(a) {
		if one.set {
			return one.name
		}
	}
	return ""
}

type namedAction struct {
	name string
	set  bool
}

func actions(a *v1alpha1.Action) []namedAction {
	return []namedAction{
		{"apply", a.Apply != nil}, {"patch", a.Patch != nil}, {"delete", a.Delete != nil}, {"wait", a.Wait != nil}, {"exec", a.Exec != nil},
		{"job", a.Job != nil}, {"http", a.HTTP != nil}, {"event", a.Event != nil}, {"log", a.Log != ""}, {"set", a.Set != nil}, {"run", a.Run != nil},
	}
}

func (o *operationCompiler) step(s *v1alpha1.Step, name, path string) (*program.Step, *expr.Env) {
	out := &program.Step{
		Name: name, Timeout: o.duration(s.Timeout, path+".timeout", 0), Retries: defaultRetries,
		OnFailure: cmp.Or(s.OnFailure, v1alpha1.StepFailureFail), OnUnknown: s.OnUnknown, Parallel: 1,
	}
	if s.Retries != nil {
		out.Retries = int(*s.Retries)
	}
	o.backoff(out, s.Backoff, s.Job != nil, path)
	out.When = o.expressionAt(s.When, path+".when", o.env, expr.Bool)
	env := o.env
	if s.ForEach != nil {
		env = o.forEach(s.ForEach, out, path+".forEach")
	}
	o.action(&s.Action, out, path, env)
	if out.OnUnknown == "" {
		out.OnUnknown = v1alpha1.UnknownPolicyRetry
		if !out.Action.Knows() || out.Action.Run != nil { // another run of unknown outcome is not begun anew by itself
			out.OnUnknown = v1alpha1.UnknownPolicyFail
		}
	}
	if s.OnFailure == v1alpha1.StepFailureUndo && !o.hasUndo() {
		o.add(diag.Diagnostic{Severity: diag.Warning, Path: path + ".onFailure", Message: "no step of the operation has undo: there is nothing to take back", Hint: "add undo to the steps whose effect is to be taken back"})
	}
	switch {
	case s.OnUnknown == v1alpha1.UnknownPolicyVerify && s.Verify == nil:
		o.errorf(path, "onUnknown: Verify needs verify")
	case s.Verify != nil && s.OnUnknown != v1alpha1.UnknownPolicyVerify:
		o.errorf(path+".verify", "verify belongs to onUnknown: Verify")
	case s.Verify != nil:
		out.Verify = o.verify(s.Verify, path+".verify", env)
	}
	if s.Output != nil {
		value, err := decodeJSON(s.Output.Raw)
		if err != nil {
			o.errorf(path+".output", "cannot read it as JSON: %s", err)
		} else {
			out.Output = o.templateRead(value, nil, path+".output", o.extended(env, path, program.VarResult))
		}
	}
	return out, env
}

func (o *operationCompiler) backoff(out *program.Step, b *v1alpha1.Backoff, job bool, path string) {
	out.BackoffInitial, out.BackoffMax = defaultBackoff, defaultMaxBackoff
	if job {
		out.BackoffInitial = defaultJobBackoff
	}
	if b == nil {
		return
	}
	out.BackoffInitial = o.duration(b.Initial, path+".backoff.initial", out.BackoffInitial)
	out.BackoffMax = max(o.duration(b.Max, path+".backoff.max", out.BackoffMax), out.BackoffInitial)
}

func (o *operationCompiler) forEach(f *v1alpha1.StepForEach, out *program.Step, path string) *expr.Env {
	out.ForEach = &program.ForEach{Var: string(f.Var), In: o.expressionAt(f.In, path+".in", o.env, expr.List)}
	if f.Parallel != nil {
		out.Parallel = int(*f.Parallel)
	}
	item := expr.Variable{Name: string(f.Var)}
	if out.ForEach.In != nil {
		item.Schema = out.ForEach.In.Schema().Items()
	}
	if o.env == nil {
		return nil
	}
	if !isName(item.Name) {
		o.add(diag.Diagnostic{Path: path + ".var", Message: "should match '" + namePattern.String() + "'", Found: fmt.Sprintf("%q", item.Name)})
		return nil
	}
	if slices.Contains(reserved, item.Name) {
		o.add(nameTaken(item.Name, path+".var"))
		return nil
	}
	env, err := o.env.With(item)
	if err != nil {
		o.add(diag.Diagnostic{Path: path + ".var", Message: fmt.Sprintf("the name %q is taken", item.Name), Hint: "choose another name for the item"})
		return nil
	}
	return env
}

// extended adds an untyped variable to an environment.
func (o *operationCompiler) extended(env *expr.Env, path, name string) *expr.Env {
	if env == nil {
		return nil
	}
	out, err := env.With(expr.Variable{Name: name})
	if err != nil {
		o.errorf(path, "%s", err)
		return env
	}
	return out
}

func (o *operationCompiler) verify(v *v1alpha1.Verify, path string, env *expr.Env) *program.Verify {
	out := &program.Verify{Condition: o.expressionAt(v.Condition, path+".condition", env, expr.Bool)}
	if v.Exec != nil {
		out.Exec = o.exec(v.Exec, path+".exec", env)
	}
	if v.HTTP != nil {
		out.HTTP = o.http(v.HTTP, path+".http", env)
	}
	return out
}

// hasUndo tells whether a step of the operation has undo steps.
func (o *operationCompiler) hasUndo() bool {
	return slices.ContainsFunc(o.spec.Steps, func(s v1alpha1.Step) bool { return len(s.Undo) > 0 })
}

// cleanup compiles undo steps, or those of onRemove.
func (o *operationCompiler) cleanup(in []v1alpha1.CleanupStep, path string, env *expr.Env, removing bool) []*program.Step {
	names := o.stepNames(len(in), path, func(i int) (v1alpha1.Name, *v1alpha1.Action) { return in[i].Name, &in[i].Action })
	var out []*program.Step
	for i := range in {
		s := &in[i]
		at := diag.Index(path, i)
		if s.OnUnknown == v1alpha1.UnknownPolicyVerify {
			o.add(diag.Diagnostic{Path: at + ".onUnknown", Message: "a step that takes something back is repeated or not: it has no verify", Expected: "Retry or Fail", Found: "Verify"})
		}
		step := &program.Step{
			Name: names[i], Timeout: o.duration(s.Timeout, at+".timeout", 0), Retries: defaultRetries, OnFailure: v1alpha1.StepFailureContinue,
			OnUnknown: cmp.Or(s.OnUnknown, v1alpha1.UnknownPolicyRetry), Parallel: 1,
		}
		if s.Retries != nil {
			step.Retries = int(*s.Retries)
		}
		o.backoff(step, s.Backoff, s.Job != nil, at)
		step.When = o.expressionAt(s.When, at+".when", env, expr.Bool)
		o.action(&s.Action, step, at, env)
		if removing && s.Run != nil {
			o.add(diag.Diagnostic{Path: at + ".run", Message: "onRemove cannot run an operation: its record would outlive what it removes", Hint: "write its steps here"})
		}
		out = append(out, step)
	}
	return out
}
