package compile

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/expr"
	"github.com/libretto-dev/libretto/internal/program"
	"github.com/libretto-dev/libretto/internal/schema"
)

// action compiles what a step does.
func (o *operationCompiler) action(a *v1alpha1.Action, out *program.Step, path string, env *expr.Env) {
	var set []string
	for _, one := range actions(a) {
		if one.set {
			set = append(set, one.name)
		}
	}
	if len(set) != 1 {
		o.errorf(path, "exactly one of apply, patch, delete, wait, exec, job, http, event, log, set and run must be set")
		return
	}
	at := path + "." + set[0]
	switch {
	case a.Apply != nil:
		out.Action.Apply = o.apply(a.Apply, at, env)
	case a.Patch != nil:
		out.Action.Patch = o.patch(a.Patch, at, env)
	case a.Delete != nil:
		out.Action.Delete = &program.DeleteAction{Object: o.reference(&a.Delete.Object, at+".object", env), Propagation: cmp.Or(a.Delete.Propagation, "Background")}
	case a.Wait != nil:
		out.Action.Wait = o.wait(a.Wait, at, env)
	case a.Exec != nil:
		out.Action.Exec = o.exec(a.Exec, at, env)
	case a.Job != nil:
		out.Action.Job = o.job(a.Job, at, env)
	case a.HTTP != nil:
		out.Action.HTTP = o.http(a.HTTP, at, env)
	case a.Event != nil:
		out.Action.Event = &program.EventAction{Type: cmp.Or(a.Event.Type, "Normal"),
			Reason: o.textAt(a.Event.Reason, at+".reason", env), Message: o.textAt(a.Event.Message, at+".message", env)}
	case a.Log != "":
		out.Action.Log = o.textAt(a.Log, at, env)
	case a.Set != nil:
		out.Action.Set = o.set(a, at, env)
	case a.Run != nil:
		out.Action.Run = o.runAction(a.Run, at, env)
	}
}

func (o *operationCompiler) apply(a *v1alpha1.ApplyAction, path string, env *expr.Env) *program.ApplyAction {
	path += ".template"
	if a.Template == nil {
		o.errorf(path, "apply needs a template")
		return &program.ApplyAction{Template: program.StaticTemplate(map[string]any{})}
	}
	n := &node{path: strings.TrimSuffix(path, ".template"), spec: &v1alpha1.Resource{Template: a.Template}, Node: &program.Node{}, reads: map[string]edge{}}
	o.identify(n)
	if n.object == nil || !n.ok {
		return &program.ApplyAction{Template: program.StaticTemplate(map[string]any{})}
	}
	o.metadata(n, path)
	if _, have := n.object["status"]; have && n.schema != nil {
		o.add(diag.Diagnostic{Path: path + ".status", Message: "status is written by the controller of the kind", Hint: "use patch with subresource: status"})
	}
	out := &program.ApplyAction{
		Kind: n.Kinds[0], Template: o.templateRead(n.object, n.schema, path, env), Retain: a.DeletionPolicy == v1alpha1.DeletionPolicyRetain,
	}
	o.labels(part(out.Template, "metadata", "labels"), path+".metadata.labels")
	o.annotations(part(out.Template, "metadata", "annotations"), path+".metadata.annotations")
	return out
}

// reference compiles a reference to an object.
func (o *operationCompiler) reference(r *v1alpha1.ObjectReference, path string, env *expr.Env) program.ObjectReference {
	var out program.ObjectReference
	if r.Resource != "" {
		if r.APIVersion != "" || r.Kind != "" || r.Name != "" || r.Namespace != "" {
			o.errorf(path, "name either a resource of the definition, or apiVersion, kind and name")
		}
		n := o.nodeNamed(string(r.Resource), path+".resource")
		switch {
		case n == nil:
		case !n.Single():
			o.add(diag.Diagnostic{Path: path + ".resource", Message: fmt.Sprintf("resource %s is a list of objects", n.Name), Hint: "name one by apiVersion, kind and name"})
		case len(n.Kinds) == 1:
			out.Node, out.Kind = n.Node, n.Kinds[0]
			o.used[n.Name] = true
		}
		return out
	}
	if r.APIVersion == "" || r.Kind == "" || r.Name == "" {
		o.errorf(path, "name either a resource of the definition, or apiVersion, kind and name")
		return out
	}
	kind, _, ok := o.kind(r.APIVersion, r.Kind, path)
	if !ok {
		return out
	}
	out.Kind = kind
	out.Name = o.textAt(r.Name, path+".name", env)
	if r.Namespace != "" {
		out.Namespace = o.textAt(r.Namespace, path+".namespace", env)
		if !kind.Namespaced && !kind.Pending {
			o.add(diag.Diagnostic{Path: path + ".namespace", Message: fmt.Sprintf("%s stands in no namespace", kind.Kind), Hint: "remove the line"})
		}
	} else if kind.Namespaced && !o.program.Instance.Namespaced && !o.program.Instance.Pending {
		o.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("%s needs a namespace, and instances have none that it could be taken from", kind.Kind), Hint: "add namespace"})
	}
	return out
}

// schemaOf is what is known of a referenced object.
func (o *operationCompiler) schemaOf(r program.ObjectReference) *schema.Schema {
	if known := o.kinds[r.Kind.GroupVersionKind]; known != nil {
		return known.Schema
	}
	return nil
}

func (o *operationCompiler) patch(a *v1alpha1.PatchAction, path string, env *expr.Env) *program.PatchAction {
	out := &program.PatchAction{Object: o.reference(&a.Object, path+".object", env), Subresource: a.Subresource}
	switch {
	case (a.Merge == nil) == (len(a.JSON) == 0):
		o.errorf(path, "exactly one of merge and json must be set")
	case a.Merge != nil:
		if object, ok := o.object(a.Merge, path+".merge"); ok {
			s := o.schemaOf(out.Object)
			if a.Subresource == "scale" {
				s = nil
			}
			t := &templater{c: o.compiler, env: env, root: path + ".merge", partial: true, removes: true}
			root := t.part(object, s, "")
			out.Merge = &program.Template{Root: root, Uses: t.uses}
			o.readsAll(out.Merge, path+".merge")
		}
	default:
		out.JSON = o.jsonPatch(a.JSON, path+".json", env)
	}
	return out
}

func (o *operationCompiler) jsonPatch(in []v1alpha1.JSONPatchOperation, path string, env *expr.Env) *program.Template {
	list := make([]any, len(in))
	for i := range in {
		p := &in[i]
		one := map[string]any{"op": p.Op, "path": p.Path}
		if p.From != "" {
			one["from"] = p.From
		}
		if p.Value != nil {
			value, err := decodeJSON(p.Value.Raw)
			if err != nil {
				o.errorf(diag.Index(path, i)+".value", "cannot read it as JSON: %s", err)
			}
			one["value"] = value
		}
		list[i] = one
	}
	return o.templateRead(list, nil, path, env)
}

func (o *operationCompiler) wait(a *v1alpha1.WaitAction, path string, env *expr.Env) *program.WaitAction {
	out := &program.WaitAction{Duration: o.duration(a.Duration, path+".duration", 0)}
	if (a.Until == "") == (a.Duration == "") {
		o.errorf(path, "exactly one of until and duration must be set")
	}
	if a.Object != nil {
		reference := o.reference(a.Object, path+".object", env)
		out.Object = &reference
		if env != nil {
			// What is missing in the object may come.
			extended, err := env.With(expr.Variable{Name: program.VarObject, Schema: o.schemaOf(reference), Pending: true})
			if err != nil {
				o.errorf(path, "%s", err)
			} else {
				env = extended
			}
		}
	}
	out.Until = o.expressionAt(a.Until, path+".until", env, expr.Bool)
	return out
}

func (o *operationCompiler) exec(a *v1alpha1.ExecAction, path string, env *expr.Env) *program.ExecAction {
	out := &program.ExecAction{Container: a.Container, Parse: cmp.Or(a.Parse, v1alpha1.ParseFormatText), PermanentExitCodes: a.PermanentExitCodes}
	switch {
	case (a.Pod == "") == (len(a.Selector) == 0):
		o.errorf(path, "exactly one of pod and selector must be set")
	case a.Pod != "":
		out.Pod = o.textAt(a.Pod, path+".pod", env)
	default:
		out.Selector = o.textMap(a.Selector, path+".selector", env)
		o.labels(out.Selector.Root, path+".selector")
	}
	command := make([]any, len(a.Command))
	for i, word := range a.Command {
		command[i] = word
	}
	if len(command) == 0 {
		o.errorf(path+".command", "required, and not there")
	}
	out.Command = o.templateRead(command, schema.ListOf(schema.Scalar(schema.String, "")), path+".command", env)
	if a.Stdin != "" {
		out.Stdin = o.textAt(a.Stdin, path+".stdin", env)
	}
	return out
}

// textMap compiles a map of text.
func (o *operationCompiler) textMap(in map[string]string, path string, env *expr.Env) *program.Template {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		object[name] = in[name]
	}
	return o.templateRead(object, schema.MapOf(schema.Scalar(schema.String, "")), path, env)
}

func (o *operationCompiler) job(a *v1alpha1.JobAction, path string, env *expr.Env) *program.JobAction {
	path += ".template"
	if a.Template == nil {
		o.errorf(path, "job needs a template")
		return &program.JobAction{Template: program.StaticTemplate(map[string]any{})}
	}
	object, ok := o.object(a.Template, path)
	if !ok {
		return &program.JobAction{Template: program.StaticTemplate(map[string]any{})}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if name != "metadata" && name != "spec" {
			o.add(diag.Diagnostic{Path: diag.Child(path, name), Message: fmt.Sprintf("the template of a Job has no field %q", name), Expected: "metadata and spec, as in the jobTemplate of a CronJob"})
			return &program.JobAction{Template: program.StaticTemplate(map[string]any{})}
		}
	}
	if object["spec"] == nil {
		o.add(diag.Diagnostic{Path: path, Message: "the template of a Job needs the field \"spec\""})
	}
	if meta, isObject := object["metadata"].(map[string]any); isObject {
		for _, name := range []string{"name", "generateName", "ownerReferences"} {
			if meta[name] != nil {
				o.add(diag.Diagnostic{Path: path + ".metadata." + name, Message: "Libretto writes it, so that it finds the Job again", Hint: "remove it"})
			}
		}
	}
	_, known, ok := o.kind("batch/v1", "Job", path)
	var s *schema.Schema
	if ok && known != nil {
		s = known.Schema
	}
	out := &program.JobAction{Template: o.templateRead(object, s, path, env)}
	o.labels(part(out.Template, "metadata", "labels"), path+".metadata.labels")
	o.annotations(part(out.Template, "metadata", "annotations"), path+".metadata.annotations")
	return out
}

func (o *operationCompiler) http(a *v1alpha1.HTTPAction, path string, env *expr.Env) *program.HTTPAction {
	out := &program.HTTPAction{Method: a.Method, URL: o.textAt(a.URL, path+".url", env), Success: a.Success}
	if out.Method == "" {
		if out.Method = "GET"; a.Body != nil {
			out.Method = "POST"
		}
	}
	if !strings.Contains(a.URL, "${") && !strings.HasPrefix(a.URL, "http://") && !strings.HasPrefix(a.URL, "https://") {
		o.add(diag.Diagnostic{Path: path + ".url", Message: "not a URL", Expected: "http://… or https://…", Found: fmt.Sprintf("%q", a.URL)})
	}
	if len(a.Headers) > 0 {
		out.Headers = o.textMap(a.Headers, path+".headers", env)
	}
	if a.Body != nil {
		value, err := decodeJSON(a.Body.Raw)
		if err != nil {
			o.errorf(path+".body", "cannot read it as JSON: %s", err)
		} else {
			out.Body = o.templateRead(value, nil, path+".body", env)
		}
	}
	if a.Auth != nil {
		if (a.Auth.Bearer == nil) == (a.Auth.Basic == nil) {
			o.errorf(path+".auth", "exactly one of bearer and basic must be set")
		}
		out.Bearer = o.secretKey(a.Auth.Bearer, path+".auth.bearer", env)
		if a.Auth.Basic != nil {
			out.Basic = o.textAt(a.Auth.Basic.Secret, path+".auth.basic.secret", env)
		}
	}
	if a.TLS != nil {
		out.CA = o.secretKey(a.TLS.CA, path+".tls.ca", env)
		out.ServerName = a.TLS.ServerName
		if a.TLS.ClientCertificate != nil {
			out.ClientCertificate = o.textAt(a.TLS.ClientCertificate.Secret, path+".tls.clientCertificate.secret", env)
		}
	}
	if a.Poll != nil {
		out.Poll = o.poll(a.Poll, path+".poll", o.extended(env, path, program.VarResult))
	}
	return out
}

func (o *operationCompiler) secretKey(k *v1alpha1.SecretKey, path string, env *expr.Env) *program.SecretKey {
	if k == nil {
		return nil
	}
	return &program.SecretKey{Secret: o.textAt(k.Secret, path+".secret", env), Key: k.Key}
}

func (o *operationCompiler) poll(p *v1alpha1.HTTPPoll, path string, env *expr.Env) *program.HTTPPoll {
	out := &program.HTTPPoll{
		Every: o.duration(p.Every, path+".every", defaultPoll),
		Until: o.expressionAt(p.Until, path+".until", env, expr.Bool), Failed: o.expressionAt(p.Failed, path+".failed", env, expr.Bool),
	}
	if p.URL != "" {
		out.URL = o.textAt(p.URL, path+".url", env)
	}
	return out
}

// set compiles fields of the status. Their types are those of the kind's schema, or are taken from the expressions.
func (o *operationCompiler) set(a *v1alpha1.Action, path string, env *expr.Env) *program.Template {
	object, ok := o.object(a.Set, path)
	if !ok {
		return nil
	}
	if o.program.CRD == nil && !o.program.WriteStatus {
		o.add(diag.Diagnostic{Path: path, Message: "Libretto writes no status to objects of a foreign kind unless asked", Hint: "add target.manage: [Status]"})
	}
	ours := o.ourStatus()
	declared, _ := o.self.Field("status")
	t := &templater{c: o.compiler, env: env, root: path}
	root := &program.Part{Kind: program.PartObject}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		_, taken := ours[name]
		switch {
		case taken && o.program.CRD != nil, o.isStatusField(name):
			d := diag.Diagnostic{Path: diag.Child(path, name), Message: fmt.Sprintf("status.%s is written by Libretto", name), Hint: "give your field another name"}
			if o.isStatusField(name) {
				d.Message, d.Hint = fmt.Sprintf("status.%s is one of status.fields, which Libretto computes all the time", name), "give the field another name here, or remove it from spec.status.fields"
			}
			o.add(d)
			continue
		case strings.Contains(name, "${"):
			o.errorf(diag.Child(path, name), "a key cannot hold ${…}")
			continue
		}
		field, known := declared.Field(name)
		if o.program.CRD == nil && !known {
			t.unknownField(name, name, declared)
		}
		part := t.part(object[name], field, name)
		root.Fields = append(root.Fields, program.Field{Name: name, Value: part})
		if o.program.CRD != nil && (!known || !slices.Contains(declared.Fields(), name)) {
			o.setNew(name, infer(part), diag.Child(path, name))
		}
	}
	out := &program.Template{Root: root, Uses: t.uses}
	o.readsAll(out, path)
	return out
}

// setNew adds a field to the status that the author's schema does not have. All steps that set it have to agree on its type.
func (o *operationCompiler) setNew(name string, p *props, path string) {
	before, twice := o.setFields[name]
	if twice && !reflect.DeepEqual(before, p) {
		o.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("another step sets status.%s to a value of another type", name),
			Expected: cmp.Or(before.Type, "any value"), Found: cmp.Or(p.Type, "any value"), Hint: "declare the field in the schema of the kind, below status"})
		return
	}
	if o.setFields == nil {
		o.setFields = map[string]*props{}
	}
	o.setFields[name] = p
	o.inferStatus(name, p.DeepCopy())
}

// isStatusField tells whether status.fields has the field.
func (o *operationCompiler) isStatusField(name string) bool {
	if o.program.StatusFields == nil {
		return false
	}
	for _, f := range o.program.StatusFields.Root.Fields {
		if f.Name == name {
			return true
		}
	}
	return false
}

func (o *operationCompiler) runAction(a *v1alpha1.RunAction, path string, env *expr.Env) *program.RunAction {
	out := &program.RunAction{Operation: string(a.Operation)}
	i := slices.IndexFunc(o.compiler.spec.Operations, func(op v1alpha1.Operation) bool { return op.Name == a.Operation })
	if i < 0 {
		var names []string
		for _, op := range o.compiler.spec.Operations {
			names = append(names, string(op.Name))
		}
		o.noSuch(path+".operation", "operation", string(a.Operation), names)
		return out
	}
	other := &operationCompiler{compiler: o.compiler, op: o.program.Operations[i], params: o.paramSchemas[string(a.Operation)]}
	switch {
	case a.Params != nil:
		if object, ok := o.object(a.Params, path+".params"); ok {
			out.Params = o.templateRead(object, other.paramsFor(path+".params"), path+".params", env)
		}
	case len(other.required()) > 0:
		o.add(diag.Diagnostic{Path: path, Message: fmt.Sprintf("operation %s needs the parameters %s", a.Operation, strings.Join(other.required(), ", ")), Hint: "add params"})
	}
	return out
}
