package scaffold

import (
	"fmt"
	"strconv"
	"strings"
)

// defaultImage serves the files of a directory over HTTP at port 80.
const defaultImage = "nginx:1.29-alpine"

// Start makes a definition with the given fields that already runs: a ConfigMap with the values, a Deployment that serves
// it, a Service, and an Ingress when there is a field host.
func Start(o Options) (*Result, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &starter{Options: o}
	return &Result{Files: map[string][]byte{
		DefinitionFile: []byte(s.definition()),
		InstanceFile:   []byte(s.instance()),
	}}, nil
}

type starter struct {
	Options
	b strings.Builder
}

func (s *starter) field(name string, t FieldType) *Field {
	for i := range s.Fields {
		if f := &s.Fields[i]; f.Name == name && f.Type == t {
			return f
		}
	}
	return nil
}

// line writes a line; indentation counts in levels of two.
func (s *starter) line(level int, format string, args ...any) {
	s.b.WriteString(strings.Repeat("  ", level))
	fmt.Fprintf(&s.b, format, args...)
	s.b.WriteByte('\n')
}

func (s *starter) text(level int, block string) {
	for _, l := range strings.Split(strings.Trim(block, "\n"), "\n") {
		if l == "" {
			s.b.WriteByte('\n')
			continue
		}
		s.line(level, "%s", l)
	}
}

func (s *starter) definition() string {
	s.b.Reset()
	s.text(0, heading(s.Options))
	s.crd()
	s.identity()
	s.line(1, "")
	s.line(1, "# The objects that a %s stands for. Any string may hold ${…}, a CEL expression: self is the %s, and every", s.Kind, s.Kind)
	s.line(1, "# resource is known to the others by its name. Who reads another one is made after it.")
	s.line(1, "resources:")
	s.config()
	s.workload()
	s.service()
	s.ingress()
	s.status()
	return tidy(s.b.String())
}

// tidy removes blanks at the ends of lines.
func tidy(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func heading(o Options) string {
	return fmt.Sprintf(`
# An operator for the kind %[1]s, in one document.
#
#   libretto validate %[2]s                  is it right? needs no cluster
#   libretto render %[2]s %[3]s      which objects does it make? needs no cluster
#   libretto run %[2]s                       be the operator, with the current kubeconfig
#   kubectl apply -f %[3]s                     in another terminal: make a %[1]s
#   libretto rbac %[2]s --apply              for a cluster that runs Libretto: the rights it needs
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata:
  name: %[4]s
spec:`, o.Kind, DefinitionFile, InstanceFile, o.definitionName())
}

func (s *starter) crd() {
	s.line(1, "# The kind, in the words of a CustomResourceDefinition.")
	s.line(1, "crd:")
	s.line(2, "group: %s", s.Group)
	if s.ClusterScoped {
		s.line(2, "scope: Cluster")
	}
	s.line(2, "names: {kind: %s, plural: %s}", s.Kind, s.plural())
	s.line(2, "versions:")
	s.line(2, "- name: %s", s.Version)
	s.line(3, "schema:")
	s.line(4, "openAPIV3Schema:")
	s.line(5, "type: object")
	var required []string
	for _, f := range s.Fields {
		if f.Required {
			required = append(required, yamlKey(f.Name))
		}
	}
	if len(required) > 0 {
		s.line(5, "required: [spec]")
	}
	s.line(5, "properties:")
	s.line(6, "spec:")
	s.line(7, "type: object")
	if len(required) > 0 {
		s.line(7, "required: [%s]", strings.Join(required, ", "))
	} else {
		s.line(7, "default: {}")
	}
	if len(s.Fields) > 0 {
		s.line(7, "properties:")
	}
	for i := range s.Fields {
		s.line(8, "%s: %s", yamlKey(s.Fields[i].Name), s.Fields[i].schema())
	}
	s.columns()
}

// columns are what kubectl get shows.
func (s *starter) columns() {
	s.line(3, "additionalPrinterColumns:        # what kubectl get shows beside NAME and AGE")
	count := 0
	for _, f := range s.Fields {
		if f.Type != TypeList && f.Type != TypeMap && count < 3 {
			count++
			s.line(3, "- {name: %s, type: %s, jsonPath: .spec.%s}", yamlKey(strings.ToUpper(f.Name[:1])+f.Name[1:]), f.Type, f.Name)
		}
	}
	s.line(3, "- {name: URL, type: string, jsonPath: .status.url}")
}

func (s *starter) identity() {
	s.line(1, "")
	s.line(1, "# Who makes the resources in a cluster. `libretto run` acts as you instead.")
	s.line(1, "serviceAccount: {namespace: %s-system, name: %s}", s.singular(), s.plural())
}

// meta writes the metadata of a resource's object. When the instance has no namespace, it names one.
func (s *starter) meta(name string) {
	const level = 3
	s.line(level, "metadata:")
	s.line(level+1, `name: %s`, name)
	if s.ClusterScoped {
		s.line(level+1, "namespace: default")
	}
	s.line(level+1, `labels: {app.kubernetes.io/name: %s, app.kubernetes.io/instance: "${self.metadata.name}"}`, s.singular())
}

func (s *starter) config() {
	s.line(1, "- name: config")
	s.line(2, "template:")
	s.line(3, "apiVersion: v1")
	s.line(3, "kind: ConfigMap")
	s.meta(`"${self.metadata.name}-config"`)
	s.line(3, "data:")
	for i := range s.Fields {
		s.line(4, "%s: %s", yamlKey(s.Fields[i].Name), quote("${"+s.Fields[i].text()+"}"))
	}
	s.line(4, "index.html: |")
	s.line(5, "<h1>%s ${self.metadata.name}</h1>", s.Kind)
	for i := range s.Fields {
		s.line(5, "<p>%s: ${%s}</p>", s.Fields[i].Name, s.Fields[i].text())
	}
}

func (s *starter) workload() {
	replicas := "1"
	if f := s.field("replicas", TypeInteger); f != nil {
		replicas = "${self.spec.replicas}"
		if !f.always() {
			replicas = "${self.spec.?replicas.orValue(1)}"
		}
	}
	image := defaultImage
	if f := s.field("image", TypeString); f != nil {
		image = "${self.spec.image}"
		if !f.always() {
			image = fmt.Sprintf("${self.spec.?image.orValue(%q)}", defaultImage)
		}
	}
	s.text(1, `
- name: workload
  template:
    apiVersion: apps/v1
    kind: Deployment`)
	s.meta(`"${self.metadata.name}"`)
	s.line(3, "spec:")
	s.line(4, "replicas: %s%s", quoteIf(replicas), map[bool]string{true: "           # a whole ${…} keeps its type: an integer", false: ""}[replicas != "1"])
	s.text(4, fmt.Sprintf(`
selector:
  matchLabels: {app.kubernetes.io/instance: "${self.metadata.name}"}
template:
  metadata:
    labels: {app.kubernetes.io/name: %s, app.kubernetes.io/instance: "${self.metadata.name}"}
    annotations:
      # Reading config makes it come first, and a change of it rolls out new pods.
      config-hash: "${hash.sha256(json(config.data))}"
  spec:
    containers:
    - name: main
      image: %s
      ports:
      - {name: http, containerPort: 80}
      volumeMounts:
      - {name: config, mountPath: /usr/share/nginx/html}
    volumes:
    - name: config
      configMap: {name: "${config.metadata.name}"}`, s.singular(), quote(image)))
}

func (s *starter) service() {
	port := "80"
	if f := s.field("port", TypeInteger); f != nil {
		port = "${self.spec.port}"
		if !f.always() {
			port = "${self.spec.?port.orValue(80)}"
		}
	}
	s.text(1, `
- name: service
  template:
    apiVersion: v1
    kind: Service`)
	s.meta(`"${self.metadata.name}"`)
	s.text(3, fmt.Sprintf(`
spec:
  selector: {app.kubernetes.io/instance: "${self.metadata.name}"}
  ports:
  - {name: http, port: %s, targetPort: http}`, quoteIf(port)))
}

func (s *starter) ingress() {
	f := s.field("host", TypeString)
	if f == nil {
		return
	}
	s.line(1, "- name: ingress")
	if f.always() {
		s.line(2, `when: self.spec.host != ""            # it exists only while this is true`)
	} else {
		s.line(2, `when: has(self.spec.host)             # it exists only while this is true`)
	}
	s.text(2, `
template:
  apiVersion: networking.k8s.io/v1
  kind: Ingress`)
	s.meta(`"${self.metadata.name}"`)
	s.text(3, `
spec:
  rules:
  - host: "${self.spec.host}"
    http:
      paths:
      - path: /
        pathType: Prefix
        backend:
          service: {name: "${service.metadata.name}", port: {name: http}}`)
}

func (s *starter) status() {
	namespace := "${self.metadata.namespace}"
	if s.ClusterScoped {
		namespace = "default"
	}
	s.line(1, "")
	s.text(1, fmt.Sprintf(`
# What the status of a %[1]s says beside Ready, which Libretto writes.
status:
  fields:
    url: "http://${service.metadata.name}.%[2]s.svc"
    availableReplicas: "${workload.?status.?availableReplicas.orValue(0)}"
  conditions:
  - type: Serving
    status: workload.?status.?availableReplicas.orValue(0) > 0
    message: "${string(workload.?status.?availableReplicas.orValue(0))} replicas answer"`, s.Kind, namespace))
}

func (s *starter) instance() string {
	s.b.Reset()
	s.line(0, "apiVersion: %s/%s", s.Group, s.Version)
	s.line(0, "kind: %s", s.Kind)
	s.line(0, "metadata:")
	s.line(1, "name: my-%s", s.singular())
	if !s.ClusterScoped {
		s.line(1, "namespace: default")
	}
	var optional []string
	wrote := false
	for i := range s.Fields {
		f := &s.Fields[i]
		if !f.always() && f.Name != "host" {
			optional = append(optional, fmt.Sprintf("# %s: %s", yamlKey(f.Name), jsonText(f.sample(&s.Options))))
			continue
		}
		if !wrote {
			s.line(0, "spec:")
			wrote = true
		}
		s.line(1, "%s: %s", yamlKey(f.Name), jsonText(f.sample(&s.Options)))
	}
	if !wrote {
		s.line(0, "spec: {}")
	}
	for _, l := range optional {
		s.line(1, "%s", l)
	}
	return s.b.String()
}

// yamlKey quotes names that YAML 1.1, and so Kubernetes, reads as booleans.
func yamlKey(name string) string {
	if contains([]string{"y", "n", "yes", "no", "on", "off", "true", "false"}, strings.ToLower(name)) {
		return strconv.Quote(name)
	}
	return name
}

// quote writes a YAML scalar: plain where that is safe, else in double or single quotes.
func quote(s string) string {
	switch {
	case !strings.ContainsAny(s, `"'\{}[],&*#?|<>=!%@:`+"`"):
		return s
	case !strings.ContainsAny(s, `"\`):
		return `"` + s + `"`
	case !strings.Contains(s, "'"):
		return "'" + s + "'"
	}
	return jsonText(s)
}

// quoteIf quotes expressions and leaves numbers alone.
func quoteIf(s string) string {
	if strings.Contains(s, "${") {
		return `"` + s + `"`
	}
	return s
}
