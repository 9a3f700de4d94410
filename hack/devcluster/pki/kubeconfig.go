package pki

import (
	"encoding/json"
	"os"
)

// WriteKubeconfig writes a kubeconfig with the named certificate inside it, so that the file can be copied elsewhere.
// It is JSON, which is YAML too.
func (a *Authority) WriteKubeconfig(path, server, name string) error {
	ca, err := os.ReadFile(a.Cert("ca"))
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(a.Cert(name))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(a.Key(name))
	if err != nil {
		return err
	}
	const self = "devcluster"
	config := kubeconfig{
		APIVersion:     "v1",
		Kind:           "Config",
		CurrentContext: self,
		Clusters:       []namedCluster{{self, clusterEntry{Server: server, CA: ca}}},
		Users:          []namedUser{{name, userEntry{Cert: cert, Key: key}}},
		Contexts:       []namedContext{{self, contextEntry{Cluster: self, User: name}}},
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// The types below are the part of the kubeconfig format that is written here. Byte slices become base64, as it wants.
type kubeconfig struct {
	APIVersion     string         `json:"apiVersion"`
	Kind           string         `json:"kind"`
	CurrentContext string         `json:"current-context"`
	Clusters       []namedCluster `json:"clusters"`
	Users          []namedUser    `json:"users"`
	Contexts       []namedContext `json:"contexts"`
}

type namedCluster struct {
	Name    string       `json:"name"`
	Cluster clusterEntry `json:"cluster"`
}

type clusterEntry struct {
	Server string `json:"server"`
	CA     []byte `json:"certificate-authority-data"`
}

type namedUser struct {
	Name string    `json:"name"`
	User userEntry `json:"user"`
}

type userEntry struct {
	Cert []byte `json:"client-certificate-data"`
	Key  []byte `json:"client-key-data"`
}

type namedContext struct {
	Name    string       `json:"name"`
	Context contextEntry `json:"context"`
}

type contextEntry struct {
	Cluster string `json:"cluster"`
	User    string `json:"user"`
}
