#!/usr/bin/env bash
# demo.sh
#
# Shows what Libretto does, step by step, with what kubectl shows. It builds what it needs, starts a Kubernetes of its own on
# this machine and removes it at the end. Each step checks what it claims: the exit code is 0 only if all of it was so.
#
#   KEEP=1           leave the cluster and Libretto running, and say how to use them
#   CLUSTER=current  use the cluster of the current kubeconfig, and clean up what was made there
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. hack/demo/lib.sh

# --- set-up ---------------------------------------------------------------------------------------------------------------

title "Build"
note "libretto"
CGO_ENABLED=0 go build -trimpath -o "$work/bin/libretto" .
export PATH=$work/bin:$PATH
if [ "$cluster" = current ]; then
  command -v kubectl >/dev/null || die "CLUSTER=current needs kubectl on the PATH"
  note "the cluster of the current kubeconfig: $(kubectl config current-context)"
  claim_cluster
else
  note "a Kubernetes control plane: etcd, kube-apiserver, kube-controller-manager and kubectl in one binary (minutes, once)"
  devcluster=$(hack/devcluster/build.sh)
  title "Start Kubernetes on this machine"
  "$devcluster" up --dir "$work/cluster" 2>&1 | indent
  printf '#!/bin/sh\nexec "%s" kubectl "$@"\n' "$devcluster" >"$work/bin/kubectl"
  chmod +x "$work/bin/kubectl"
  export KUBECONFIG=$work/cluster/kubeconfig
fi

title "Install Libretto: two kinds and the rights of its own, which do not reach what definitions make"
run kubectl apply --server-side -k hack/demo | tail -n 4
start_manager
[ -n "$(kubectl get nodes -o name)" ] || start_kubelet_stand_in

# --- one document becomes an operator -------------------------------------------------------------------------------------

title "1. One document becomes an operator"
say "examples/alice/definition.yaml declares the kind Alice and what an Alice stands for: a ConfigMap, a Deployment, a Service."
run libretto validate examples/alice
say "The operator acts as a ServiceAccount that has the least rights which the document needs, and no others:"
apply_rights examples/alice/definition.yaml alices.k106.com
apply_definition examples/alice/definition.yaml
expect 30 "the definition is Ready" condition opdef alices.k106.com Ready
run kubectl get opdef
run kubectl get crd alices.k106.com -o custom-columns=NAME:.metadata.name,SHORT:.spec.names.shortNames,SCOPE:.spec.scope

title "2. An object of the kind becomes resources"
kubectl create namespace "$ns" >/dev/null
run kubectl -n "$ns" apply -f examples/alice/instance.yaml
expect 60 "the Alice is Ready" condition alice wonderland Ready
run kubectl -n "$ns" get alice
run kubectl -n "$ns" get deployment,service,configmap -l libretto.dev/instance
run kubectl -n "$ns" get alice wonderland -o jsonpath='{range .status.conditions[*]}{.type}={.status}: {.message}{"\n"}{end}'

title "3. A bad object is refused by the API server"
say "myvalue must have at least one character; here it has none:"
refuse "spec.myvalue" kubectl -n "$ns" apply -f - <<'YAML'
{"apiVersion": "k106.com/v1alpha1", "kind": "Alice", "metadata": {"name": "bad"}, "spec": {"myvalue": ""}}
YAML

title "4. Somebody changes a resource by hand: it is changed back, and an event says who it was"
before=$(now)
run kubectl -n "$ns" set image deployment/wonderland web=nginx:latest --field-manager=mad-hatter
expect 10 "the image is nginx:1.29-alpine again" same nginx:1.29-alpine kubectl -n "$ns" get deployment wonderland -o 'jsonpath={.spec.template.spec.containers[0].image}'
note "$(($(now) - before)) ms, kubectl's own time included"
expect 10 "an event names the other field manager" contains mad-hatter kubectl -n "$ns" get events --field-selector reason=DriftRepaired -o 'jsonpath={.items[*].message}{.items[*].note}'
run kubectl -n "$ns" get events --field-selector reason=DriftRepaired -o custom-columns=OBJECT:.involvedObject.name,REASON:.reason,MESSAGE:.message

title "5. An update rolls through: first of one object, then of the document"
hash_before=$(kubectl -n "$ns" get deployment wonderland -o 'jsonpath={.spec.template.metadata.annotations.k106\.com/page}')
run kubectl -n "$ns" patch alice wonderland --type=merge -p '{"spec":{"myvalue":"Through the looking-glass"}}'
expect 10 "the ConfigMap has the new page" contains looking-glass kubectl -n "$ns" get configmap wonderland-page -o 'jsonpath={.data}'
expect 10 "the pods' template has another hash, so they roll" differs "$hash_before" kubectl -n "$ns" get deployment wonderland -o 'jsonpath={.spec.template.metadata.annotations.k106\.com/page}'
for name in tweedledee tweedledum; do
  sed "s/wonderland/$name/" examples/alice/instance.yaml | kubectl -n "$ns" apply -f - >/dev/null
done
expect 60 "three Alices are Ready" same "True True True" kubectl -n "$ns" get alice -o 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'
say "The document gets another image; all three follow:"
sed 's/nginx:1.29-alpine/nginx:1.30-alpine/' examples/alice/definition.yaml >"$work/alice-2.yaml"
apply_definition "$work/alice-2.yaml"
expect 30 "three Deployments have the new image" same "nginx:1.30-alpine nginx:1.30-alpine nginx:1.30-alpine" kubectl -n "$ns" get deployment -o 'jsonpath={.items[*].spec.template.spec.containers[0].image}'
run kubectl get oprev

title "6. A bad document is refused with all its errors, and changes nothing that runs"
# shellcheck disable=SC2016 # ${…} is for Libretto
sed -e 's/config.data\[/config.dat[/' -e 's/containerPort: 80/containerPort: "${self.spec.myvalue}"/' -e 's/volumeMounts:/volumeMount:/' \
  "$work/alice-2.yaml" >"$work/alice-bad.yaml"
say "On the author's machine, with line and hint:"
refuse "did you mean" libretto validate "$work/alice-bad.yaml"
if [ -n "$webhook" ]; then
  say "And by the API server, through Libretto's admission webhook:"
  refuse "spec.resources" kubectl apply --server-side --force-conflicts -f "$work/alice-bad.yaml"
fi
expect 5 "all three are Ready still" same "True True True" kubectl -n "$ns" get alice -o 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'

# --- the other examples ---------------------------------------------------------------------------------------------------

title "7. An existing kind gets resources too: Namespaces with a team (examples/team-namespace)"
install examples/team-namespace/definition.yaml team-namespaces.example.com
run kubectl label namespace "$ns" example.com/team=payments
expect 15 "the Namespace has quota, limits, isolation and members" exist "$ns" resourcequota/team limitrange/team networkpolicy/same-team-only rolebinding/team
run kubectl -n "$ns" get resourcequota,limitrange,networkpolicy,rolebinding
run kubectl label namespace "$ns" example.com/team-
expect 15 "without the label they are gone" gone "$ns" resourcequota/team limitrange/team networkpolicy/same-team-only rolebinding/team

title "8. A loop, resources when asked for, an external Secret (examples/webapp)"
install examples/webapp/definition.yaml webapps.example.com
run kubectl -n "$ns" apply -f examples/webapp/instance.yaml
expect 60 "the WebApp is Ready" condition webapp shop Ready
run kubectl -n "$ns" get webapp
run kubectl -n "$ns" get deployment,ingress -l app.kubernetes.io/name=shop

title "9. A kustomize base that became an operator (examples/from-kustomize)"
say "The definition names a directory beside it, which a cluster cannot read; inline puts the files into the definition:"
note "libretto inline examples/from-kustomize/definition.yaml > guestbooks.yaml"
libretto inline examples/from-kustomize/definition.yaml >"$work/guestbooks.yaml"
install "$work/guestbooks.yaml" guestbooks.example.com
run kubectl -n "$ns" apply -f examples/from-kustomize/instance.yaml
expect 60 "the Guestbook is Ready" condition guestbook friends Ready
run kubectl -n "$ns" get guestbook
run kubectl -n "$ns" get deployment,service,ingress,configmap -l app.kubernetes.io/instance=friends

title "10. A kind that uses two other kinds, deleted in order (examples/platform)"
install examples/platform/definition.yaml databases.platform.example.com websites.platform.example.com platforms.platform.example.com
run kubectl -n "$ns" apply -f examples/platform/instance.yaml
expect 90 "the Platform is Ready" condition platform acme Ready
run kubectl -n "$ns" get platform,database,website
run kubectl -n "$ns" delete platform acme --wait=false
deleted_in_order website/acme-web database/acme-db platform/acme

# --- operations -----------------------------------------------------------------------------------------------------------

title "11. What happens at create, update and delete (examples/hello)"
say "A HelloOperator stands for no resources. It has three operations; each says that it was called."
install examples/hello/definition.yaml helloopperators.terry.com
run kubectl -n "$ns" apply -f examples/hello/instance.yaml
expect 20 "at create: an event with the object in it" contains '"name":"my-helloworld"' event_messages Created
run kubectl -n "$ns" patch helloop my-helloworld --type=merge -p '{"spec":{"greeting":"hi"}}'
expect 20 "at update: an event with what is and what was" contains '{"greeting":"hi"}, which was {}' event_messages Updated
run kubectl -n "$ns" get events --field-selector involvedObject.kind=HelloOperator -o custom-columns=REASON:.reason,MESSAGE:.message
say "Each run is an object. Anybody with the right to create one can start an operation; the API server checks it:"
refuse "wave" kubectl -n "$ns" apply -f - <<'YAML'
{"apiVersion": "terry.com/v1", "kind": "HelloOperatorOperation", "metadata": {"name": "by-hand"}, "spec": {"target": "my-helloworld", "operation": "wave"}}
YAML
run libretto operation start helloop/my-helloworld created --namespace "$ns" --wait
run kubectl -n "$ns" get hellooperatoroperations
say "At delete the object stays until its operation has run:"
run kubectl -n "$ns" delete helloop my-helloworld --timeout=30s
expect 10 "at delete: an event" contains "is going" event_messages Deleted
expect 40 "the runs have gone with it" same "" kubectl -n "$ns" get hellooperatoroperations -o name

# --- the end --------------------------------------------------------------------------------------------------------------

title "12. A document goes only after its objects"
run kubectl delete opdef alices.k106.com --wait=false
expect 15 "it stays, and says why" contains InstancesExist kubectl get opdef alices.k106.com -o 'jsonpath={.status.conditions[*].reason}'
run kubectl -n "$ns" delete alice --all --wait=false
expect 30 "with its objects gone it goes" absent opdef alices.k106.com
expect 30 "and so do the ConfigMap, the Deployment and the Service" gone "$ns" configmap/wonderland-page deployment/wonderland service/wonderland

finished
