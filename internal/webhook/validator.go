package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/libretto-dev/libretto/api/v1alpha1"
	"github.com/libretto-dev/libretto/internal/diag"
	"github.com/libretto-dev/libretto/internal/program"
)

// Path is where the API server sends OperatorDefinitions.
const Path = "/validate-libretto-dev-v1alpha1-operatordefinition"

// +kubebuilder:webhook:path=/validate-libretto-dev-v1alpha1-operatordefinition,mutating=false,failurePolicy=fail,sideEffects=None,groups=libretto.dev,resources=operatordefinitions,verbs=create;update,versions=v1alpha1,name=operatordefinitions.libretto.dev,admissionReviewVersions=v1,timeoutSeconds=10

// Compile compiles a definition against all kinds that can be known.
type Compile func(context.Context, *v1alpha1.OperatorDefinition) (*program.Program, diag.List)

// MayImpersonate asks whether somebody may act as a ServiceAccount.
type MayImpersonate func(ctx context.Context, sa *v1alpha1.ServiceAccountReference,
	allowed func(context.Context, *authorizationv1.ResourceAttributes) (bool, error)) (bool, error)

// Validator admits OperatorDefinitions. It implements admission.Validator.
type Validator struct {
	Compile        Compile
	MayImpersonate MayImpersonate
	// Client creates SubjectAccessReviews as Libretto.
	Client client.Client
}

var _ admission.Validator[*v1alpha1.OperatorDefinition] = (*Validator)(nil)

// SetupWithManager serves the Validator from the manager's webhook server.
func (v *Validator) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewWebhookManagedBy(mgr, &v1alpha1.OperatorDefinition{}).WithValidator(v).Complete()
	if err != nil {
		return fmt.Errorf("cannot register the webhook: %w", err)
	}
	return nil
}

// ValidateCreate implements admission.Validator.
func (v *Validator) ValidateCreate(ctx context.Context, def *v1alpha1.OperatorDefinition) (admission.Warnings, error) {
	return v.validate(ctx, def)
}

// ValidateUpdate implements admission.Validator. What changes no spec is let through, and what is being deleted need not compile:
// nobody is to be kept from removing a finalizer. But a deletion acts too, so that nobody may change whom it acts as without
// the right to.
func (v *Validator) ValidateUpdate(ctx context.Context, old, def *v1alpha1.OperatorDefinition) (admission.Warnings, error) {
	switch {
	case equality.Semantic.DeepEqual(old.Spec, def.Spec):
		return nil, nil
	case !def.DeletionTimestamp.IsZero():
		var errs diag.List
		if sa := def.Spec.ServiceAccount; sa != nil {
			if err := v.account(ctx, sa, &errs); err != nil {
				return nil, err
			}
		}
		if len(errs) > 0 {
			return nil, invalid(def, errs)
		}
		return nil, nil
	}
	return v.validate(ctx, def)
}

// ValidateDelete implements admission.Validator; the API server does not ask about deletions.
func (*Validator) ValidateDelete(context.Context, *v1alpha1.OperatorDefinition) (admission.Warnings, error) {
	return nil, nil
}

func (v *Validator) validate(ctx context.Context, def *v1alpha1.OperatorDefinition) (admission.Warnings, error) {
	_, found := v.Compile(ctx, def)
	errs := found.Errors()
	if sa := def.Spec.ServiceAccount; sa == nil {
		errs.Add(diag.Diagnostic{
			Path: "spec.serviceAccount", Message: "is not set: a definition in a cluster needs the ServiceAccount that acts for it",
			Hint: "`libretto rbac` prints one with the least rights",
		})
	} else if err := v.account(ctx, sa, &errs); err != nil {
		return nil, err
	}
	if len(errs) > 0 {
		return warnings(found), invalid(def, errs)
	}
	return warnings(found), nil
}

// account adds an error if the author may not act as the ServiceAccount.
func (v *Validator) account(ctx context.Context, sa *v1alpha1.ServiceAccountReference, errs *diag.List) error {
	ok, err := v.authorMay(ctx, sa)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("cannot ask whether you may use the ServiceAccount: %w", err))
	}
	if !ok {
		errs.Add(diag.Diagnostic{
			Path:    "spec.serviceAccount",
			Message: fmt.Sprintf("you may not act as ServiceAccount %s/%s, and so no definition of yours may", sa.Namespace, sa.Name),
			Hint:    fmt.Sprintf("you need the verb impersonate on serviceaccounts %q in namespace %q", sa.Name, sa.Namespace),
		})
	}
	return nil
}

// authorMay asks the API server whether the author of the request may act as the ServiceAccount.
func (v *Validator) authorMay(ctx context.Context, sa *v1alpha1.ServiceAccountReference) (bool, error) {
	req, err := admission.RequestFromContext(ctx)
	if err != nil {
		return false, err
	}
	return v.MayImpersonate(ctx, sa, func(ctx context.Context, a *authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups, Extra: extra(req.UserInfo.Extra), ResourceAttributes: a,
		}}
		err := v.Client.Create(ctx, review)
		return review.Status.Allowed, err
	})
}

func extra(in map[string]authenticationv1.ExtraValue) map[string]authorizationv1.ExtraValue {
	out := make(map[string]authorizationv1.ExtraValue, len(in))
	for k, v := range in {
		out[k] = authorizationv1.ExtraValue(v)
	}
	return out
}

// mostWarnings and the length of a warning are what kubectl prints in full; the API server cuts off what is longer.
const (
	mostWarnings  = 10
	warningLength = 250
)

func warnings(found diag.List) admission.Warnings {
	var out admission.Warnings
	for _, d := range found.Warnings() {
		d.Severity = diag.Error // kubectl puts the word Warning before it
		out = append(out, oneLine(diag.List{d}.Summary(warningLength)))
	}
	if len(out) > mostWarnings {
		out = append(out[:mostWarnings], fmt.Sprintf("and %d more", len(out)-mostWarnings))
	}
	return out
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " ") }

// invalid returns the errors as the API server returns its own: status Invalid, with one cause for each field.
func invalid(def *v1alpha1.OperatorDefinition, errs diag.List) error {
	lines := make([]string, 0, len(errs))
	causes := make([]metav1.StatusCause, 0, len(errs))
	for _, e := range errs {
		text := e
		text.File, text.Line, text.Column = "", 0, 0
		lines = append(lines, text.String())
		text.Path = ""
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: e.Path, Message: text.String()})
	}
	group := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "operatordefinitions"}
	noun := "errors"
	if len(errs) == 1 {
		noun = "error"
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("OperatorDefinition %q has %d %s:\n%s", def.Name, len(errs), noun, strings.Join(lines, "\n")),
		Details: &metav1.StatusDetails{Name: def.Name, Group: group.Group, Kind: "OperatorDefinition", Causes: causes},
	}}
}
