package compile

import (
	"cmp"
	"fmt"
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
		if _, err := trigger.LoadZone(t.TimeZone); err != nil {
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
