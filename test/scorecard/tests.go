package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// installed: what the ClusterServiceVersion promises is there, and ready.
func installed(ctx context.Context, s *suite) error {
	deployments, err := s.deployments()
	if err != nil {
		return err
	}
	for name := range deployments {
		if err := s.available(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range []string{"operatordefinitions.libretto.dev", "operatorrevisions.libretto.dev"} {
		crd, err := s.get(ctx, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name)
		if err != nil {
			return err
		}
		if c := condition(crd, "Established"); c == nil || c["status"] != "True" {
			return fmt.Errorf("%s is not established", name)
		}
	}
	return nil
}

// available waits for a Deployment, and tells what it lacks.
func (s *suite) available(ctx context.Context, name string) error {
	return eventually(ctx, func() error {
		d, err := s.get(ctx, "apps/v1", "Deployment", s.namespace, name)
		if err != nil {
			return err
		}
		wanted, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
		ready, _, _ := unstructured.NestedInt64(d.Object, "status", "readyReplicas")
		all, _, _ := unstructured.NestedInt64(d.Object, "status", "replicas")
		if ready < wanted || all != wanted {
			return fmt.Errorf("deployment %s has %d pods, of which %d are ready, not %d", name, all, ready, wanted)
		}
		return nil
	})
}

// operator is the operator of a test: a Card becomes a ConfigMap.
const operator = `
apiVersion: v1
kind: Namespace
metadata: {name: NAME}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: NAME, name: cards}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules:
- {apiGroups: [NAME.example.com], resources: [cards], verbs: [get, list, watch, patch]}
- {apiGroups: [NAME.example.com], resources: [cards/status], verbs: [get, patch]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects: [{kind: ServiceAccount, namespace: NAME, name: cards}]
---
apiVersion: libretto.dev/v1alpha1
kind: OperatorDefinition
metadata: {name: cards.NAME.example.com}
spec:
  crd:
    group: NAME.example.com
    names: {kind: Card}
    versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties: {spec: {type: object, required: [text], properties: {text: {type: string, maxLength: 100}}}}
  serviceAccount: {namespace: NAME, name: cards}
  resources:
  - name: text
    template:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "${self.metadata.name}"}
      data: {text: "${self.spec.text}"}
`

const card = `
apiVersion: NAME.example.com/v1
kind: Card
metadata: {namespace: NAME, name: card}
spec: {text: hello}
`

// setUp makes the operator and one instance, and waits until both are ready.
func (s *suite) setUp(ctx context.Context) error {
	if err := s.apply(ctx, operator); err != nil {
		return err
	}
	if err := s.ready(ctx, "libretto.dev/v1alpha1", "OperatorDefinition", "", "cards."+s.group()); err != nil {
		return err
	}
	if err := s.apply(ctx, card); err != nil {
		return err
	}
	return s.ready(ctx, s.group()+"/v1", "Card", s.word(), "card")
}

func (s *suite) group() string { return s.word() + ".example.com" }

// tearDown removes what setUp made, in order. It has a time of its own.
func (s *suite) tearDown() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, o := range [][4]string{
		{s.group() + "/v1", "Card", s.word(), "card"},
		{"libretto.dev/v1alpha1", "OperatorDefinition", "", "cards." + s.group()},
		{"rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", s.word()},
		{"rbac.authorization.k8s.io/v1", "ClusterRole", "", s.word()},
		{"v1", "Namespace", "", s.word()},
	} {
		u := object(o[0], o[1])
		u.SetNamespace(o[2])
		u.SetName(o[3])
		if err := s.client.Delete(ctx, u); err != nil && !isGone(err) {
			return fmt.Errorf("cannot delete %s %s: %w", o[1], o[3], err)
		}
		if o[1] == "Namespace" {
			continue // it takes a while, and nothing comes after it
		}
		if err := s.gone(ctx, o[0], o[1], o[2], o[3]); err != nil {
			return err
		}
	}
	return nil
}

func isGone(err error) bool {
	return apierrors.IsNotFound(err) || strings.Contains(err.Error(), "no matches for kind")
}

func (s *suite) gone(ctx context.Context, apiVersion, kind, namespace, name string) error {
	return eventually(ctx, func() error {
		_, err := s.get(ctx, apiVersion, kind, namespace, name)
		if err == nil {
			return fmt.Errorf("%s %s is there yet", kind, name)
		}
		if !isGone(err) {
			return err
		}
		return nil
	})
}

func (s *suite) ready(ctx context.Context, apiVersion, kind, namespace, name string) error {
	return eventually(ctx, func() error {
		u, err := s.get(ctx, apiVersion, kind, namespace, name)
		if err != nil {
			return err
		}
		c := condition(u, "Ready")
		if c == nil || c["status"] != "True" || c["observedGeneration"] != u.GetGeneration() {
			return fmt.Errorf("%s %s is not ready: %v", kind, name, c)
		}
		return nil
	})
}

func condition(u *unstructured.Unstructured, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range all {
		if c, ok := c.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return nil
}

// definitionWorks: a definition, an instance, its child, a change, drift.
func definitionWorks(ctx context.Context, s *suite) (err error) {
	defer func() { err = errors.Join(err, s.tearDown()) }()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	if err := s.childSays(ctx, "hello"); err != nil {
		return err
	}
	if err := s.apply(ctx, strings.ReplaceAll(card, "hello", "changed")); err != nil {
		return err
	}
	if err := s.childSays(ctx, "changed"); err != nil {
		return err
	}
	child, err := s.get(ctx, "v1", "ConfigMap", s.word(), "card")
	if err != nil {
		return err
	}
	if err := s.client.Patch(ctx, child, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"text":"drift"}}`))); err != nil {
		return fmt.Errorf("cannot change the child: %w", err)
	}
	return s.childSays(ctx, "changed")
}

func (s *suite) childSays(ctx context.Context, text string) error {
	return eventually(ctx, func() error {
		child, err := s.get(ctx, "v1", "ConfigMap", s.word(), "card")
		if err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedString(child.Object, "data", "text"); got != text {
			return fmt.Errorf("the child says %q, not %q", got, text)
		}
		return nil
	})
}

// examplesValid: the API server takes what the bundle shows, schema, CEL rules, unknown fields and webhook included.
func examplesValid(ctx context.Context, s *suite) error {
	csv, err := s.csv()
	if err != nil {
		return err
	}
	var examples []map[string]any
	if err := json.Unmarshal([]byte(csv.GetAnnotations()["alm-examples"]), &examples); err != nil {
		return fmt.Errorf("alm-examples is no JSON: %w", err)
	}
	for _, e := range examples {
		u := &unstructured.Unstructured{Object: e}
		u.SetName("scorecard-" + u.GetName())
		if u.GetKind() == "OperatorDefinition" {
			u.SetName(strings.TrimPrefix(u.GetName(), "scorecard-")) // it is the name of the kind
		}
		err := s.client.Create(ctx, u, client.DryRunAll, client.FieldValidation("Strict"))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("the API server does not take the example %s: %w", u.GetName(), err)
		}
		fmt.Fprintf(s.log, "%s %s is valid\n", u.GetKind(), u.GetName())
	}
	return nil
}

// conditions: definition and instance conform to kstatus.
func conditions(ctx context.Context, s *suite) (err error) {
	defer func() { err = errors.Join(err, s.tearDown()) }()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	for _, o := range [][4]string{
		{"libretto.dev/v1alpha1", "OperatorDefinition", "", "cards." + s.group()},
		{s.group() + "/v1", "Card", s.word(), "card"},
	} {
		u, err := s.get(ctx, o[0], o[1], o[2], o[3])
		if err != nil {
			return err
		}
		if g, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration"); g != u.GetGeneration() {
			return fmt.Errorf("%s: status.observedGeneration is %d, the generation %d", o[1], g, u.GetGeneration())
		}
		all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		var types []string
		for _, c := range all {
			c := c.(map[string]any)
			types = append(types, c["type"].(string))
			if c["reason"] == "" || c["lastTransitionTime"] == nil || c["observedGeneration"] != u.GetGeneration() {
				return fmt.Errorf("%s: the condition %v lacks a reason, a time or the generation", o[1], c)
			}
		}
		if !slices.Contains(types, "Ready") || slices.Contains(types, "Reconciling") || slices.Contains(types, "Stalled") {
			return fmt.Errorf("%s is ready and has the conditions %v", o[1], types)
		}
		fmt.Fprintf(s.log, "%s: %s\n", o[1], strings.Join(types, ", "))
	}
	return nil
}

// metricsServed: /metrics of each pod is served to those who may read it, and to nobody else.
func metricsServed(ctx context.Context, s *suite) error {
	pods, err := s.list(ctx, "v1", "Pod", client.InNamespace(s.namespace), client.MatchingLabels{"control-plane": "controller-manager"})
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return errors.New("there are no pods of the manager")
	}
	for _, p := range pods {
		ip, _, _ := unstructured.NestedString(p.Object, "status", "podIP")
		code, _, err := scrape(ctx, ip, "")
		if err != nil || code == http.StatusOK {
			return fmt.Errorf("/metrics answers %d without a token: %w", code, err)
		}
		code, body, err := scrape(ctx, ip, s.config.BearerToken)
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("/metrics answers %d: %w", code, err)
		}
		for _, name := range []string{"libretto_", "controller_runtime_reconcile_total", "go_goroutines"} {
			if !strings.Contains(body, "\n"+name) {
				return fmt.Errorf("/metrics does not have %s", name)
			}
		}
	}
	return nil
}

func scrape(ctx context.Context, ip, token string) (int, string, error) {
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // the pod signs its certificate itself
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(ip, "8443")+"/metrics", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return res.StatusCode, string(body), err
}

// upgradeKeepsInstances: the pods of the manager are replaced, as an upgrade does it, and no child is written to.
func upgradeKeepsInstances(ctx context.Context, s *suite) (err error) {
	defer func() { err = errors.Join(err, s.tearDown()) }()
	if err := s.setUp(ctx); err != nil {
		return err
	}
	before, err := s.get(ctx, "v1", "ConfigMap", s.word(), "card")
	if err != nil {
		return err
	}
	labels := client.MatchingLabels{"control-plane": "controller-manager"}
	pods, err := s.list(ctx, "v1", "Pod", client.InNamespace(s.namespace), labels)
	if err != nil {
		return err
	}
	for i := range pods {
		if err := s.client.Delete(ctx, &pods[i]); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("cannot delete a pod of the manager: %w", err)
		}
		if err := s.gone(ctx, "v1", "Pod", s.namespace, pods[i].GetName()); err != nil {
			return err
		}
	}
	deployments, err := s.deployments()
	if err != nil {
		return err
	}
	for name := range deployments {
		if err := s.available(ctx, name); err != nil {
			return err
		}
	}
	if err := s.ready(ctx, "libretto.dev/v1alpha1", "OperatorDefinition", "", "cards."+s.group()); err != nil {
		return err
	}
	after, err := s.get(ctx, "v1", "ConfigMap", s.word(), "card")
	if err != nil {
		return err
	}
	if after.GetUID() != before.GetUID() || after.GetResourceVersion() != before.GetResourceVersion() {
		return errors.New("the child was written to")
	}
	if err := s.apply(ctx, strings.ReplaceAll(card, "hello", "again")); err != nil {
		return err
	}
	return s.childSays(ctx, "again")
}

// deletionLeavesNothing: an instance goes with its child, a definition with its kind and its revisions.
func deletionLeavesNothing(ctx context.Context, s *suite) error {
	if err := s.setUp(ctx); err != nil {
		return errors.Join(err, s.tearDown())
	}
	if err := s.tearDown(); err != nil {
		return err
	}
	if err := s.gone(ctx, "v1", "ConfigMap", s.word(), "card"); err != nil {
		return err
	}
	if err := s.gone(ctx, "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "cards."+s.group()); err != nil {
		return err
	}
	return eventually(ctx, func() error {
		revisions, err := s.list(ctx, "libretto.dev/v1alpha1", "OperatorRevision")
		if err != nil {
			return err
		}
		for _, r := range revisions {
			if of, _, _ := unstructured.NestedString(r.Object, "spec", "definition"); of == "cards."+s.group() {
				return fmt.Errorf("revision %s is there yet", r.GetName())
			}
		}
		return nil
	})
}

// restrictedPodSecurity: the pods that the ClusterServiceVersion describes are admitted where the restricted profile is enforced.
func restrictedPodSecurity(ctx context.Context, s *suite) (err error) {
	defer func() { err = errors.Join(err, s.tearDown()) }()
	err = s.apply(ctx, `
apiVersion: v1
kind: Namespace
metadata: {name: NAME, labels: {pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/enforce-version: latest}}
`)
	if err != nil {
		return err
	}
	deployments, err := s.deployments()
	if err != nil {
		return err
	}
	for name, d := range deployments {
		template, _, err := unstructured.NestedMap(d, "template", "spec")
		if err != nil {
			return fmt.Errorf("deployment %s has no pods: %w", name, err)
		}
		delete(template, "serviceAccountName")
		pod := object("v1", "Pod")
		pod.SetNamespace(s.word())
		pod.SetName(name)
		pod.Object["spec"] = template
		err = eventually(ctx, func() error { // the namespace's default ServiceAccount comes a moment later
			return s.client.Create(ctx, pod.DeepCopy(), client.DryRunAll)
		})
		if err != nil {
			return fmt.Errorf("a pod of deployment %s is not admitted: %w", name, err)
		}
	}
	return nil
}

// unprivilegedDefinitions: Libretto itself may not read or write the objects of a definition.
func unprivilegedDefinitions(ctx context.Context, s *suite) error {
	csv, err := s.csv()
	if err != nil {
		return err
	}
	clientset, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		return fmt.Errorf("cannot make a client: %w", err)
	}
	accounts := map[string]bool{}
	list, _, _ := unstructured.NestedSlice(csv.Object, "spec", "install", "spec", "clusterPermissions")
	for _, p := range list {
		accounts[p.(map[string]any)["serviceAccountName"].(string)] = true
	}
	for account := range accounts {
		for _, a := range []authorizationv1.ResourceAttributes{
			{Verb: "get", Resource: "secrets", Namespace: "default"},
			{Verb: "list", Resource: "configmaps", Namespace: "default"},
			{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "default"},
			{Verb: "create", Resource: "pods", Namespace: "default"},
			{Verb: "escalate", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
			{Verb: "bind", Group: "rbac.authorization.k8s.io", Resource: "clusterroles"},
		} {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				ResourceAttributes: &a, User: "system:serviceaccount:" + s.namespace + ":" + account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + s.namespace, "system:authenticated"},
			}}
			review, err := clientset.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("cannot ask what %s may do: %w", account, err)
			}
			if review.Status.Allowed {
				return fmt.Errorf("%s may %s %s", account, a.Verb, a.Resource)
			}
		}
	}
	return nil
}
