package v1alpha1

// Kustomization is a kustomize base that is built in memory.
//
// +kubebuilder:validation:XValidation:rule="has(self.path) != has(self.files)",message="exactly one of path (a directory beside the definition, for the CLI) and files (the files themselves) must be set"
type Kustomization struct {
	// path of the directory with a kustomization.yaml, relative to the definition's file. The CLI puts its files in place of
	// it when the definition goes to a cluster.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path,omitempty"`
	// files are the files of the base by their path; one of them is kustomization.yaml. Any string may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=100
	Files map[string]string `json:"files,omitempty"`
	// images replaces images, in kustomize's words; values may contain ${…}.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	Images []KustomizeImage `json:"images,omitempty"`
	// replicas replaces replica counts, in kustomize's words; the count may be a ${…}.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	Replicas []KustomizeReplicas `json:"replicas,omitempty"`
	// namePrefix is put before all names; may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	NamePrefix string `json:"namePrefix,omitempty"`
	// nameSuffix is put behind all names; may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	NameSuffix string `json:"nameSuffix,omitempty"`
}

// KustomizeImage replaces an image.
type KustomizeImage struct {
	// name of the image in the base.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name,omitempty"`
	// newName replaces the name; may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	NewName string `json:"newName,omitempty"`
	// newTag replaces the tag; may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	NewTag string `json:"newTag,omitempty"`
	// digest replaces the tag by a digest; may contain ${…}.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Digest string `json:"digest,omitempty"`
}

// KustomizeReplicas replaces a replica count.
type KustomizeReplicas struct {
	// name of the object in the base.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// count is a number or a ${…}.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Count string `json:"count,omitempty"`
}
