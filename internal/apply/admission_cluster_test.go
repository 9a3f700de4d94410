package apply_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/libretto-dev/libretto/internal/apply"
	"github.com/libretto-dev/libretto/internal/testkit"
)

// What admission refuses is told apart from what the identity may not do and from what is invalid.
func TestAdmission(t *testing.T) {
	f := newFixture(t)
	cs, err := kubernetes.NewForConfig(testkit.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/services": resource.MustParse("0")}}}
	if _, err := cs.CoreV1().ResourceQuotas(f.namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	policies := cs.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: f.namespace}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": f.namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}}}}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "not today"}}}}
	if _, err := policies.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: f.namespace},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: f.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	if _, err := policies.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = policies.ValidatingAdmissionPolicyBindings().Delete(context.Background(), f.namespace, metav1.DeleteOptions{})
		_ = policies.ValidatingAdmissionPolicies().Delete(context.Background(), f.namespace, metav1.DeleteOptions{})
	})
	cases := map[string]struct{ text, by, message string }{
		"a quota":  {`{apiVersion: v1, kind: Service, metadata: {name: NAME}, spec: {ports: [{port: 80}]}}`, "quota", "exceeded quota: none"},
		"a policy": {`{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME}}`, "policy " + f.namespace, "not today"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f.t = t
			// Policies and quotas take a moment to be known to the API server.
			testkit.Eventually(t, wait, "it is refused", func() error {
				o := f.desired(strings.ReplaceAll(tc.text, "NAME", testkit.Unique("o")))
				_, err := f.writer.Apply(t.Context(), apply.Request{Desired: o})
				var refused *apply.AdmissionError
				if !errors.As(err, &refused) || refused.By != tc.by || !strings.Contains(refused.Message, tc.message) {
					return fmt.Errorf("%T %w", err, err)
				}
				return nil
			})
		})
	}
}
