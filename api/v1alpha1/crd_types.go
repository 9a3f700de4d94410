package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// CRDSpec has the words of a CustomResourceDefinition's spec.
//
// +kubebuilder:validation:XValidation:rule="self.versions.size() == 1 || self.versions.filter(v, has(v.storage) && v.storage).size() == 1",message="exactly one of several versions must have storage: true"
type CRDSpec struct {
	// group is the API group of the kind, for example example.com.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.contains('.') && !self.endsWith('.k8s.io') && !self.endsWith('.kubernetes.io') && self != 'libretto.dev'",message="group must be a domain of your own, such as example.com; k8s.io, kubernetes.io and libretto.dev are reserved"
	Group string `json:"group,omitempty"`

	// names are the names of the kind.
	// +required
	Names CRDNames `json:"names,omitzero"`

	// scope says whether instances live in namespaces. Default Namespaced.
	// +optional
	// +kubebuilder:default=Namespaced
	Scope ResourceScope `json:"scope,omitempty"`

	// versions are the versions of the kind. A single one is served and stored without saying so.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	Versions []CRDVersion `json:"versions,omitempty"`
}

// ResourceScope is the scope of a kind.
//
// +kubebuilder:validation:Enum=Namespaced;Cluster
type ResourceScope string

// Scopes of a kind.
const (
	ResourceScopeNamespaced ResourceScope = "Namespaced"
	ResourceScopeCluster    ResourceScope = "Cluster"
)

// CRDNames are the names of a declared kind.
type CRDNames struct {
	// kind is the name of the kind, in CamelCase.
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// plural is the lower-case plural used in URLs. Default: the lower-case kind with an s.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Plural string `json:"plural,omitempty"`
	// singular is the lower-case singular. Default: the lower-case kind.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Singular string `json:"singular,omitempty"`
	// listKind is the kind of a list. Default: the kind with List.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=70
	ListKind string `json:"listKind,omitempty"`
	// shortNames are the short names that kubectl knows the kind by.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=63
	ShortNames []string `json:"shortNames,omitempty"`
	// categories are the groups of kinds that the kind is listed with, such as all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=63
	Categories []string `json:"categories,omitempty"`
}

// CRDVersion is one version of a declared kind, in the words of a CustomResourceDefinition.
type CRDVersion struct {
	// name is the version, for example v1alpha1.
	// +required
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// served says whether the API server serves the version. Default true.
	// +optional
	Served *bool `json:"served,omitempty"`
	// storage marks the version that is stored, and that expressions see. Default true when there is one version.
	// +optional
	Storage *bool `json:"storage,omitempty"`
	// deprecated marks the version as deprecated.
	// +optional
	Deprecated *bool `json:"deprecated,omitempty"`
	// deprecationWarning is what the API server tells users of a deprecated version.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	DeprecationWarning string `json:"deprecationWarning,omitempty"`
	// schema is the schema of the version.
	// +optional
	Schema *CRDSchema `json:"schema,omitempty"`
	// additionalPrinterColumns are what kubectl get shows beside NAME, Ready and AGE.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	AdditionalPrinterColumns []PrinterColumn `json:"additionalPrinterColumns,omitempty"`
	// selectableFields are the fields that field selectors may use.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	SelectableFields []SelectableField `json:"selectableFields,omitempty"`
	// subresources are the subresources. The status subresource is always there.
	// +optional
	Subresources *Subresources `json:"subresources,omitempty"`
}

// CRDSchema holds the schema of a version.
type CRDSchema struct {
	// openAPIV3Schema is a structural schema, as a CustomResourceDefinition takes it. apiVersion, kind, metadata and the
	// status fields that Libretto writes need not be in it.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	OpenAPIV3Schema runtime.RawExtension `json:"openAPIV3Schema,omitzero"`
}

// PrinterColumn is a column of kubectl get.
type PrinterColumn struct {
	// name is the heading.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// type is an OpenAPI type.
	// +required
	// +kubebuilder:validation:Enum=integer;number;string;boolean;date
	Type string `json:"type,omitempty"`
	// jsonPath selects the value within an object, for example .spec.replicas.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	JSONPath string `json:"jsonPath,omitempty"`
	// format is an OpenAPI format.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Format string `json:"format,omitempty"`
	// description describes the column.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// priority above 0 shows the column in wide output only.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Priority *int32 `json:"priority,omitempty"`
}

// SelectableField is a field that field selectors may use.
type SelectableField struct {
	// jsonPath selects the field, for example .spec.color.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	JSONPath string `json:"jsonPath,omitempty"`
}

// Subresources are the subresources of a declared kind.
type Subresources struct {
	// status is accepted so that a CustomResourceDefinition can be pasted in; the status subresource is always there.
	// +optional
	Status *EmptyObject `json:"status,omitempty"`
	// scale enables kubectl scale and autoscalers.
	// +optional
	Scale *ScaleSubresource `json:"scale,omitempty"`
}

// EmptyObject is an object without fields.
type EmptyObject struct{}

// ScaleSubresource says where replicas are found.
type ScaleSubresource struct {
	// specReplicasPath is the path of the wanted replicas, under .spec.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	SpecReplicasPath string `json:"specReplicasPath,omitempty"`
	// statusReplicasPath is the path of the observed replicas, under .status.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	StatusReplicasPath string `json:"statusReplicasPath,omitempty"`
	// labelSelectorPath is the path of the serialized label selector.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	LabelSelectorPath string `json:"labelSelectorPath,omitempty"`
}
