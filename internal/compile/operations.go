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
	"github.com/libretto-dev/libretto/internal/trigger"
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
	op.OnRemove = o.cleanup(s.OnRemove, o.path+".onRemove", true)
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

// trigger compiles a trigger.
func (o *operationCompiler) trigger(t *v1alpha1.Trigger, i int) {
	path := diag.Index(o.path+".triggers", i)
	out := &program.Trigger{
		Index: i, Event: t.Event, Missed: cmp.Or(t.Missed, v1alpha1.MissedPolicySkip),
		StartingDeadline: o.duration(t.StartingDeadline, path+".startingDeadline", defaultStartingDeadline),
		Idle:             o.duration(t.Idle, path+".idle", 0), InitialDelay: o.duration(t.InitialDelay, path+".initialDelay", 0),
		Jitter: o.duration(t.Jitter, path+".jitter", 0), For: o.duration(t.For, path+".for", 0), Cooldown: o.duration(t.Cooldown, path+".cooldown", 0),
	}
	o.op.Triggers = append(o.op.Triggers, out)
	set := 0
	for _, is := range []bool{t.Event != "", t.Schedule != nil, t.Every != nil, t.Condition != "", t.Watch != nil} {
		if is {
			set++
		}
	}
	switch {
	case set != 1:
		o.errorf(path, "exactly one of event, schedule, every, condition and watch must be set")
		return
	case t.Event != "":
		out.Type = v1alpha1.TriggerType(t.Event)
		o.eventTrigger(t, out, path)
	case t.Schedule != nil:
		out.Type = v1alpha1.TriggerTypeSchedule
		o.scheduleTrigger(t, out, path)
	case t.Every != nil:
		out.Type = v1alpha1.TriggerTypeEvery
		out.Every = o.textAt(*t.Every, path+".every", o.triggerEnv)
		if !strings.Contains(*t.Every, "${") && *t.Every != "" {
			if o.duration(v1alpha1.Duration(*t.Every), path+".every", time.Second) < time.Second {
				o.add(diag.Diagnostic{Path: path + ".every", Message: "the interval is too short", Expected: "at least 1s", Found: fmt.Sprintf("%q", *t.Every)})
			}
		}
	case t.Condition != "":
		out.Type = v1alpha1.TriggerTypeCondition
		out.Condition = o.expressionAt(t.Condition, path+".condition", o.compiler.env, expr.Bool)
		out.Until = o.expressionAt(t.Until, path+".until", o.compiler.env, expr.Bool)
	case t.Watch != nil:
		out.Type = v1alpha1.TriggerTypeWatch
		o.watchTrigger(t.Watch, out, path+".watch")
	}
	out.When = o.expressionAt(t.When, path+".when", o.triggerEnv, expr.Bool)
	if t.Params != nil {
		if object, ok := o.object(t.Params, path+".params"); ok {
			out.Params = o.templateRead(object, o.paramsFor(path+".params"), path+".params", o.triggerEnv)
		}
	} else if required := o.required(); len(required) > 0 {
		o.add(diag.Diagnostic{Path: path, Message: "the operation needs the parameters " + strings.Join(required, ", "), Hint: "add params to the trigger"})
	}
	if o.program.CRD == nil && slices.Contains([]v1alpha1.TriggerType{v1alpha1.TriggerTypeUpdate, v1alpha1.TriggerTypeResume, v1alpha1.TriggerTypeCondition, v1alpha1.TriggerTypeWatch}, out.Type) {
		what := strings.ToLower(string(out.Type))
		if t.Event != "" {
			what = "event: " + string(t.Event)
		}
		o.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("a target cannot have %s: Libretto remembers nothing in the status of a foreign kind", what),
			Hint: "use event: Create or Delete, schedule or every; or declare a kind of your own that names the object"})
	}
}

// paramsFor is the schema of parameters, or an error when there are none.
func (o *operationCompiler) paramsFor(path string) *schema.Schema {
	if !o.op.HasParams {
		o.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("operation %s takes no parameters", o.op.Name), Hint: "remove it, or declare parameters"})
	}
	return o.params
}

func (o *operationCompiler) required() []string {
	if o.params == nil {
		return nil
	}
	var out []string
	for _, name := range o.params.Fields() {
		if o.params.IsRequired(name) {
			out = append(out, name)
		}
	}
	return out
}

func (o *operationCompiler) eventTrigger(t *v1alpha1.Trigger, out *program.Trigger, path string) {
	if !slices.Contains([]v1alpha1.EventTrigger{v1alpha1.EventTriggerCreate, v1alpha1.EventTriggerUpdate, v1alpha1.EventTriggerDelete, v1alpha1.EventTriggerResume}, t.Event) {
		o.add(diag.Diagnostic{Path: path + ".event", Message: "not one of the possible values", Expected: `"Create", "Update", "Delete", "Resume"`, Found: fmt.Sprintf("%q", string(t.Event))})
	}
	if len(t.Fields) > 0 && t.Event != v1alpha1.EventTriggerUpdate {
		o.errorf(path+".fields", "fields belongs to event: Update")
	}
	for i, field := range t.Fields {
		out.Fields = append(out.Fields, o.fieldPath(field, o.self, diag.Index(path+".fields", i)))
	}
	if t.Event == v1alpha1.EventTriggerDelete && o.program.CRD == nil && !o.program.HoldFinalizer {
		o.add(diag.Diagnostic{Path: path, Message: "event: Delete has to hold the object with a finalizer", Hint: "add target.manage: [Finalizer]"})
	}
}

// fieldPath reads a path such as spec.x, and checks it against a schema.
func (o *operationCompiler) fieldPath(text string, s *schema.Schema, path string) []string {
	names := strings.Split(strings.TrimPrefix(text, "."), ".")
	for i, name := range names {
		if name == "" || strings.ContainsAny(name, "[]*") {
			o.add(diag.Diagnostic{Path: path, Message: "not a path of field names", Expected: "a path such as spec.replicas", Found: fmt.Sprintf("%q", text)})
			return names
		}
		if s == nil {
			continue
		}
		next, known := s.Field(name)
		if !known {
			d := diag.Diagnostic{Path: path, Message: fmt.Sprintf("there is no field %s", strings.Join(names[:i+1], "."))}
			if near, ok := diag.Nearest(name, s.Fields()); ok {
				d.Hint = fmt.Sprintf("did you mean %s?", near)
			}
			o.add(d)
			return names
		}
		s = next
	}
	return names
}

func (o *operationCompiler) scheduleTrigger(t *v1alpha1.Trigger, out *program.Trigger, path string) {
	out.Schedule = o.textAt(*t.Schedule, path+".schedule", o.triggerEnv)
	if !strings.Contains(*t.Schedule, "${") && *t.Schedule != "" {
		if _, err := trigger.ParseSchedule(*t.Schedule); err != nil {
			o.add(diag.Diagnostic{Path: path + ".schedule", Message: "not a schedule: " + strings.TrimPrefix(err.Error(), "not a schedule "), Found: fmt.Sprintf("%q", *t.Schedule)})
		}
	}
	if t.TimeZone == "" {
		return
	}
	out.TimeZone = o.textAt(t.TimeZone, path+".timeZone", o.triggerEnv)
	if !strings.Contains(t.TimeZone, "${") {
		if _, err := time.LoadLocation(t.TimeZone); err != nil || t.TimeZone == "Local" {
			o.add(diag.Diagnostic{Path: path + ".timeZone", Message: "no such time zone", Expected: "a name such as Europe/Berlin", Found: fmt.Sprintf("%q", t.TimeZone)})
		}
	}
}

func (o *operationCompiler) watchTrigger(w *v1alpha1.WatchTrigger, out *program.Trigger, path string) {
	out.Watch = &program.WatchTrigger{External: string(w.External), Resource: string(w.Resource)}
	var of *schema.Schema
	switch {
	case (w.External == "") == (w.Resource == ""):
		o.errorf(path, "exactly one of external and resource must be set")
		return
	case w.External != "":
		i := slices.IndexFunc(o.program.Externals, func(e program.External) bool { return e.Name == string(w.External) })
		if i < 0 {
			o.noSuch(path+".external", "external object", string(w.External), o.externalNames())
			return
		}
		out.Watch.List = o.program.Externals[i].List
		if known := o.kinds[o.program.Externals[i].Kind.GroupVersionKind]; known != nil {
			of = known.Schema
		}
		o.used[string(w.External)] = true
	default:
		n := o.nodeNamed(string(w.Resource), path+".resource")
		if n == nil {
			return
		}
		out.Watch.List, of = !n.Single(), n.schema
	}
	for i, field := range w.Fields {
		out.Watch.Fields = append(out.Watch.Fields, o.fieldPath(field, of, diag.Index(path+".fields", i)))
	}
}

func (o *operationCompiler) externalNames() []string {
	var names []string
	for i := range o.program.Externals {
		names = append(names, o.program.Externals[i].Name)
	}
	return names
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
