package compile

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// Defaults of operations.
const (
	defaultTimeout          = time.Hour
	defaultRetries          = 3
	defaultBackoff          = time.Second
	defaultJobBackoff       = 10 * time.Second
	defaultMaxBackoff       = 5 * time.Minute
	defaultStartingDeadline = time.Minute
	defaultPoll             = 5 * time.Second
	defaultKept             = 3
)

// reservedOperations are the fields of the spec of operation objects: beside them stand the parameters of each operation.
var reservedOperations = []string{"target", "operation", "cancel", "paused", "retry", "trigger"}

// operationCompiler is an operation that is being compiled.
type operationCompiler struct {
	*compiler
	spec *v1alpha1.Operation
	op   *program.Operation
	path string
	// params is the schema of the parameters; nil: none.
	params *schema.Schema
	// env is the environment of the steps; triggerEnv that of triggers.
	env, triggerEnv *expr.Env
	// before are the names of the steps that stand before the one that is being compiled.
	before []string
}

// operations compiles the operations.
func (c *compiler) operations() {
	if len(c.spec.Operations) == 0 {
		if c.spec.OperationKind != nil {
			c.add(diag.Diagnostic{Severity: diag.Warning, Path: "spec.operationKind", Message: "the definition has no operations", Hint: "remove it"})
		}
		return
	}
	names := map[string]bool{}
	var all []*operationCompiler
	for i := range c.spec.Operations {
		o := &operationCompiler{compiler: c, spec: &c.spec.Operations[i], path: diag.Index("spec.operations", i)}
		name := string(o.spec.Name)
		switch {
		case !isName(name):
			c.add(diag.Diagnostic{Path: o.path + ".name", Message: "should match '" + namePattern.String() + "'", Found: fmt.Sprintf("%q", name)})
		case slices.Contains(reservedOperations, name):
			c.add(diag.Diagnostic{Path: o.path + ".name", Message: "the name is that of a field of operation objects; choose another", Found: fmt.Sprintf("%q", name)})
		case names[name]:
			c.add(diag.Diagnostic{Path: o.path + ".name", Message: fmt.Sprintf("there are two operations %q", name), Hint: "rename one"})
		}
		names[name] = true
		o.op = &program.Operation{Name: name, Index: i, Hash: hashOf(o.spec), HasParams: o.spec.Parameters != nil}
		c.program.Operations = append(c.program.Operations, o.op)
		all = append(all, o)
	}
	c.operationKind()
	for _, o := range all {
		o.params = c.paramSchemas[o.op.Name]
		o.compile()
	}
	c.operationCycles()
}

// hashOf identifies an operation, whatever the order of keys.
func hashOf(o *v1alpha1.Operation) string {
	sum := sha256.Sum256([]byte(canonical(o)))
	return hex.EncodeToString(sum[:8])
}

func (o *operationCompiler) compile() {
	s, op := o.spec, o.op
	op.Timeout = o.duration(s.Timeout, o.path+".timeout", defaultTimeout)
	op.OnFailure = cmp.Or(s.OnFailure, v1alpha1.OperationFailureFail)
	op.Concurrency = cmp.Or(s.Concurrency, v1alpha1.ConcurrencyForbid)
	op.Exclusive = s.Exclusive != nil && *s.Exclusive
	if s.Priority != nil {
		op.Priority = *s.Priority
	}
	op.Stale = o.duration(s.Stale, o.path+".stale", 0)
	op.Retain = o.retention(s.Retain)
	o.environments()
	before := len(o.list)
	if s.OnFailure != "" && !slices.ContainsFunc(s.Triggers, func(t v1alpha1.Trigger) bool { return t.Event == v1alpha1.EventTriggerDelete }) {
		o.add(diag.Diagnostic{Path: o.path + ".onFailure", Message: "onFailure of an operation says what a failed run of event: Delete means, and there is no such trigger",
			Hint: "remove it, or set onFailure of a step"})
	}
	for i := range s.Triggers {
		o.trigger(&s.Triggers[i], i)
	}
	op.Steps = o.steps(s.Steps)
	if len(op.Steps) == 0 {
		o.errorf(o.path+".steps", "an operation needs a step")
	}
	if s.Output != nil {
		if object, ok := o.object(s.Output, o.path+".output"); ok {
			op.Output = o.templateRead(object, nil, o.path+".output", o.env)
		}
	}
	o.columns()
	op.OnRemove = o.cleanup(s.OnRemove, o.path+".onRemove", o.env, true)
	o.hints(before)
	old := oldFields(op)
	for _, t := range op.Triggers {
		if t.Type == v1alpha1.TriggerTypeUpdate {
			t.OldFields = old
		}
	}
}

// misplaced are the hints for variables where they do not exist.
var misplaced = map[string]string{
	program.VarParams:  "params belongs to steps; a trigger gives them by its params",
	program.VarSteps:   "steps belongs to steps and to output",
	program.VarTrigger: "trigger belongs to steps; a trigger sees self, resources, external objects, variables and, for an Update, old",
	program.VarRun:     "run belongs to steps; a trigger fires before there is one",
	program.VarOld:     "old belongs to steps, and to when and params of a trigger",
	program.VarResult:  "result belongs to output of a step, and to poll of http",
	program.VarObject:  "object belongs to until of a wait that names an object",
}

// hints say what applies to operations, where what is said of resources does not help.
func (o *operationCompiler) hints(before int) {
	for i := before; i < len(o.list); i++ {
		if _, name, found := strings.Cut(o.list[i].Message, "or variable named "); found && misplaced[name] != "" {
			o.list[i].Hint = misplaced[name]
		}
		name, _, found := strings.Cut(o.list[i].Message, " yields something else every time")
		if found && strings.HasPrefix(name, "random.") {
			o.list[i].Message = name + " yields something else every time: an attempt that is made again has to be the same"
			o.list[i].Hint = "use run.uid, or a resource with createOnce: true"
		}
	}
}

// columns checks that columns show what there is.
func (o *operationCompiler) columns() {
	var have []string
	known := true
	if o.op.Output != nil {
		names := fields(o.op.Output.Root)
		have, known = slices.Sorted(maps.Keys(names)), o.op.Output.Root.Kind != program.PartExpr
	}
	for i, name := range o.spec.Columns {
		at := diag.Index(o.path+".columns", i)
		switch {
		case known && !slices.Contains(have, name):
			d := diag.Diagnostic{Path: at, Message: fmt.Sprintf("output has no field %q", name), Hint: diag.DidYouMean(name, have)}
			if len(have) == 0 {
				d.Hint = "columns show fields of output: add output"
			}
			o.add(d)
		case !isName(name):
			o.add(diag.Diagnostic{Path: at, Message: "should match '" + namePattern.String() + "'", Found: fmt.Sprintf("%q", name)})
		case slices.Contains(ownColumns, strings.ToLower(name)):
			o.add(diag.Diagnostic{Path: at, Message: fmt.Sprintf("there is a column %q already", name), Hint: "give the field of output another name"})
		}
	}
}

// duration reads a duration; the default stands for an empty one.
func (o *operationCompiler) duration(d v1alpha1.Duration, path string, otherwise time.Duration) time.Duration {
	if d == "" {
		return otherwise
	}
	value, err := program.ParseDuration(string(d))
	if err == nil && value == 0 && otherwise > 0 {
		o.add(diag.Diagnostic{Path: path, Message: "the duration is zero", Expected: "more than nothing", Found: fmt.Sprintf("%q", string(d)), Hint: fmt.Sprintf("remove the line for the default, %s", otherwise)})
	}
	if err != nil {
		o.add(diag.Diagnostic{Path: path, Message: "not a duration", Expected: "a duration such as 90s, 1h30m or 30d", Found: fmt.Sprintf("%q", string(d))})
		return otherwise
	}
	return value
}

func (o *operationCompiler) retention(r *v1alpha1.Retention) program.Retention {
	out := program.Retention{Last: defaultKept, Failed: defaultKept}
	if r == nil {
		return out
	}
	number := func(n *int32) int {
		if n == nil {
			return 0
		}
		return int(*n)
	}
	out.Daily, out.Weekly, out.Monthly = number(r.Daily), number(r.Weekly), number(r.Monthly)
	out.Within = o.duration(r.Within, o.path+".retain.within", 0)
	if out.Daily+out.Weekly+out.Monthly > 0 || out.Within > 0 {
		out.Last = 1
	}
	if r.Last != nil {
		out.Last = int(*r.Last)
	}
	if r.Failed != nil {
		out.Failed = int(*r.Failed)
	}
	return out
}

// environments makes the environments of the operation's expressions.
func (o *operationCompiler) environments() {
	if o.compiler.env == nil {
		return
	}
	dyn := func(name string) expr.Variable { return expr.Variable{Name: name} }
	old := expr.Variable{Name: program.VarOld, Optional: true}
	var err error
	if o.triggerEnv, err = o.compiler.env.With(old); err != nil {
		o.errorf(o.path, "%s", err)
		return
	}
	o.env, err = o.compiler.env.With(old, expr.Variable{Name: program.VarParams, Schema: o.params}, dyn(program.VarSteps), dyn(program.VarTrigger), dyn(program.VarRun))
	if err != nil {
		o.errorf(o.path, "%s", err)
	}
}

// templateRead compiles a template and notes what it reads.
func (o *operationCompiler) templateRead(value any, s *schema.Schema, path string, env *expr.Env) *program.Template {
	t := o.template(value, s, path, env, false)
	o.readsAll(t, path)
	return t
}

// readsAll notes what the expressions of a template read.
func (o *operationCompiler) readsAll(t *program.Template, path string) {
	for _, use := range t.Uses {
		at := path
		switch {
		case use.Path == "":
		case use.Path[0] == '[':
			at += use.Path
		default:
			at += "." + use.Path
		}
		o.reads(use.Expr, at)
	}
}

func (o *operationCompiler) textAt(value, path string, env *expr.Env) *program.Template {
	t := o.text(value, path, env)
	o.readsAll(t, path)
	return t
}

func (o *operationCompiler) expressionAt(src v1alpha1.Expression, path string, env *expr.Env, want expr.Want) *expr.Expr {
	if src == "" {
		return nil
	}
	x := o.expression(string(src), path, env, want)
	o.reads(x, path)
	return x
}

// reads notes what an expression reads, and checks the steps that it names.
func (o *operationCompiler) reads(x *expr.Expr, path string) {
	if x == nil {
		return
	}
	o.read(x)
	for _, ref := range x.Refs() {
		if ref.Variable == program.VarParams && o.spec.Parameters == nil {
			o.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("operation %s takes no parameters", o.op.Name), Hint: "declare them: parameters: {openAPIV3Schema: …}"})
		}
		if ref.Variable == program.VarOld {
			o.readsOld(ref.Path, path)
		}
		if ref.Variable != program.VarSteps || len(ref.Path) == 0 || ref.Path[0] == "*" {
			continue
		}
		if slices.Contains(o.before, ref.Path[0]) {
			o.readsStep(ref.Path, path)
			continue
		}
		d := diag.Diagnostic{Path: path, Message: fmt.Sprintf("steps.%s: no step of that name stands before", ref.Path[0])}
		if near, ok := diag.Nearest(ref.Path[0], o.before); ok {
			d.Hint = fmt.Sprintf("did you mean steps.%s?", near)
		} else if len(o.before) > 0 {
			d.Hint = "before it stand: " + strings.Join(o.before, ", ")
		}
		o.add(d)
	}
}

// readsStep checks the field of a step that an expression reads.
func (o *operationCompiler) readsStep(way []string, path string) {
	fields := []string{"message", "output", "state"}
	if len(way) < 2 || way[1] == "*" || slices.Contains(fields, way[1]) {
		return
	}
	o.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("a step has no field %q", way[1]), Expected: "one of " + diag.OneOf(fields, len(fields)),
		Hint: cmp.Or(diag.DidYouMean(way[1], fields), fmt.Sprintf("what the step yields is below output: steps.%s.output.%s", way[0], way[1]))})
}

// readsOld checks the path that an expression reads of old.
func (o *operationCompiler) readsOld(way []string, path string) {
	s := o.self
	for i, name := range way {
		if name == "*" {
			return
		}
		next, known := s.Field(name)
		if !known {
			if s.Type() == schema.Object {
				o.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("old has no field %s", strings.Join(way[:i+1], ".")), Hint: diag.DidYouMean(name, s.Fields())})
			}
			return
		}
		s = next
	}
}

// oldFields lists the paths that the expressions of an operation read of old.
func oldFields(op *program.Operation) [][]string {
	var out [][]string
	program.EachExpr(op, func(x *expr.Expr) {
		for _, ref := range x.Refs() {
			way := ref.Path
			if i := slices.Index(way, "*"); i >= 0 { // of a list or map, all is kept
				way = way[:i]
			}
			if ref.Variable == program.VarOld && len(way) > 0 {
				out = append(out, way)
			}
		}
	})
	slices.SortFunc(out, slices.Compare)
	return slices.CompactFunc(out, slices.Equal)
}

// nodeNamed finds a resource.
func (o *operationCompiler) nodeNamed(name, path string) *node {
	var names []string
	for _, n := range o.nodes {
		if n.Name == name {
			return n
		}
		names = append(names, n.Name)
	}
	o.noSuch(path, "resource", name, names)
	return nil
}

func (o *operationCompiler) noSuch(path, what, name string, names []string) {
	d := diag.Diagnostic{Path: path, Message: fmt.Sprintf("there is no %s %q", what, name)}
	if near, ok := diag.Nearest(name, names); ok {
		d.Hint = fmt.Sprintf("did you mean %s?", near)
	} else if len(names) > 0 {
		d.Expected = "one of " + diag.OneOf(names, 12)
	}
	if found := o.whatIs(name); found != "" {
		d.Hint = fmt.Sprintf("%s is %s", name, found)
	}
	o.add(d)
}

// operationCycles finds operations that run each other without end.
func (c *compiler) operationCycles() {
	runs := map[string][]string{}
	c.program.VisitActions(func(op *program.Operation, _ *program.Step, a *program.Action) {
		if a.Run != nil {
			runs[op.Name] = append(runs[op.Name], a.Run.Operation)
		}
	})
	for i, op := range c.program.Operations {
		if cycle := findCycle(runs, op.Name, []string{op.Name}); cycle != nil {
			c.add(diag.Diagnostic{Path: diag.Index("spec.operations", i) + ".steps", Message: "operations run each other without end: " + strings.Join(cycle, " → ")})
			return
		}
	}
}

func findCycle(runs map[string][]string, from string, way []string) []string {
	for _, next := range runs[from] {
		if next == way[0] {
			return append(way, next)
		}
		if slices.Contains(way, next) {
			continue
		}
		if found := findCycle(runs, next, append(slices.Clone(way), next)); found != nil {
			return found
		}
	}
	return nil
}
