# shellcheck shell=bash
# What demo.sh is written in: steps that are shown, and checks that fail loudly.

cluster=${CLUSTER:-embedded}
case "$cluster" in embedded | current) ;; *) echo "CLUSTER must be current, or not be set" >&2; exit 2 ;; esac
keep=${KEEP:-}
ns=demo
[ "$cluster" = embedded ] || ns=libretto-demo
began=$SECONDS
work=$(mktemp -d "${TMPDIR:-/tmp}/libretto-demo.XXXXXX")
mkdir -p "$work/bin"
: >"$work/rights"
devcluster='' manager='' stand_in='' webhook='' done_all='' claimed=''
passed=0
definitions=() namespaces=()

if [ -t 1 ]; then bold=$'\e[1m' blue=$'\e[1;34m' green=$'\e[32m' red=$'\e[1;31m' dim=$'\e[2m' plain=$'\e[0m'
else bold='' blue='' green='' red='' dim='' plain=''; fi

title() { printf '\n%s== %s%s\n' "$blue" "$1" "$plain"; }
say() { printf '%s\n' "$1"; }
note() { printf '%s   %s%s\n' "$dim" "$1" "$plain"; }
indent() { sed -u 's/^/   /'; }
now() { echo $(($(date +%s%N) / 1000000)); } # milliseconds

die() {
  printf '%s   ✗ %s%s\n' "$red" "$1" "$plain" >&2
  if [ -s "$work/manager.log" ]; then
    echo "   the last lines of Libretto's log:" >&2
    tail -n 25 "$work/manager.log" | cut -c1-400 | indent >&2
  fi
  exit 1
}
pass() {
  passed=$((passed + 1))
  printf '%s   ✓ %s%s\n' "$green" "$1" "$plain"
}

# run COMMAND... shows a command and what it prints, and fails if it fails.
run() {
  printf '%s$ %s%s\n' "$bold" "$*" "$plain"
  "$@" 2>&1 | indent || die "the command failed"
}

# refuse TEXT COMMAND... shows a command that must fail, with TEXT in what it prints.
refuse() {
  local text=$1 out status=0
  shift
  printf '%s$ %s%s\n' "$bold" "$*" "$plain"
  out=$("$@" 2>&1) || status=$?
  indent <<<"$out"
  [ "$status" != 0 ] || die "it was accepted"
  [[ $out == *"$text"* ]] || die "it was refused, but not for $text"
  pass "refused"
}

# expect SECONDS WHAT COMMAND... waits until the command succeeds.
expect() {
  local until=$((SECONDS + $1)) what=$2
  shift 2
  while ! "$@" >"$work/last" 2>&1; do
    if [ "$SECONDS" -ge "$until" ]; then
      echo "   last seen:" >&2
      tail -n 30 "$work/last" | indent >&2
      die "not so: $what"
    fi
    sleep 0.1
  done
  pass "$what"
}

# Checks for expect; each prints what it saw.
condition() {
  local got
  got=$(kubectl -n "$ns" get "$1" "$2" -o "jsonpath={.status.conditions[?(@.type==\"$3\")].status}") || return 1
  [ "$got" = True ] || { kubectl -n "$ns" get "$1" "$2" -o yaml; return 1; }
}
same() { local want=$1 got; shift; got=$("$@") && echo "$got" && [ "$got" = "$want" ]; }
differs() { local old=$1 got; shift; got=$("$@") && echo "${got:0:200}" && [ "$got" != "$old" ]; }
contains() { local want=$1 got; shift; got=$("$@") && echo "$got" && [[ $got == *"$want"* ]]; }
event_messages() { kubectl -n "$ns" get events --field-selector reason="$1" -o 'jsonpath={range .items[*]}{.message}{.note}{"\n"}{end}'; }
exist() { local in=$1; shift; kubectl -n "$in" get "$@"; }
absent() { ! kubectl get "$@"; }
gone() { local in=$1 left; shift; left=$(kubectl -n "$in" get "$@" --ignore-not-found -o name) && echo "$left" && [ -z "$left" ]; }

apply_definition() {
  definitions+=("$1")
  run kubectl apply --server-side --force-conflicts -f "$1"
}

# apply_rights FILE DEFINITION gives a definition's ServiceAccount the rights that it needs.
apply_rights() {
  echo "$1 $2" >>"$work/rights"
  run libretto rbac "$1" --definition "$2" --apply
}

# install FILE DEFINITION... applies the rights and the definitions of a file, and waits until they are Ready.
install() {
  local file=$1 name
  shift
  for name in "$@"; do apply_rights "$file" "$name" >"$work/last" 2>&1 || { cat "$work/last"; die "cannot apply the rights"; }; done
  apply_definition "$file"
  for name in "$@"; do expect 30 "definition $name is Ready" condition opdef "$name" Ready; done
}

# deleted_in_order KIND/NAME... watches objects go, and fails unless they go in this order.
deleted_in_order() {
  local until=$((SECONDS + 60)) left seen='' object
  local rest=("$@")
  while [ ${#rest[@]} -gt 0 ]; do
    [ "$SECONDS" -lt "$until" ] || die "still there: ${rest[*]}"
    for object in "${!rest[@]}"; do
      left=$(kubectl -n "$ns" get "${rest[$object]}" --ignore-not-found -o name)
      [ -z "$left" ] || break
      seen+="${rest[$object]} "
      note "gone: ${rest[$object]}"
      unset "rest[$object]"
    done
    rest=("${rest[@]}")
    sleep 0.1
  done
  [ "$seen" = "$* " ] || die "the order was: $seen"
  pass "deleted in order: $*"
}

# free_port prints a port of the loopback interface that nothing listens on.
free_port() {
  local port
  while port=$((20000 + RANDOM % 20000)); (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}

# start_manager runs `libretto manager` here, as the ServiceAccount that has Libretto's own rights and no others.
start_manager() {
  local config=$work/manager.kubeconfig port token args=(manager --metrics-bind-address=0 --health-probe-bind-address=0)
  expect 20 "Libretto's ServiceAccount is there" kubectl -n libretto-system get serviceaccount libretto-controller-manager
  token=$(kubectl -n libretto-system create token libretto-controller-manager --duration=2h)
  kubectl config view --raw --minify --flatten >"$config"
  chmod 600 "$config"
  kubectl --kubeconfig "$config" config set-credentials libretto-demo --token="$token" >/dev/null
  kubectl --kubeconfig "$config" config set-context --current --user=libretto-demo >/dev/null
  kubectl --kubeconfig "$config" config view --raw -o jsonpath='{.users[*].name}' | tr ' ' '\n' | grep -vx libretto-demo |
    xargs -rn1 kubectl --kubeconfig "$config" config delete-user >/dev/null
  if [ "$cluster" = embedded ]; then
    port=$(free_port)
    webhook=https://127.0.0.1:$port
    kubectl apply --server-side -k hack/demo/webhook >/dev/null
    args+=(--webhook=self-signed --webhook-host=127.0.0.1 --webhook-port="$port" --webhook-url="$webhook" --webhook-cert-dir="$work/webhook")
  else
    args+=(--webhook=off) # the API server of another machine does not reach this process
  fi
  KUBECONFIG=$config POD_NAMESPACE=libretto-system setsid libretto "${args[@]}" >"$work/manager.log" 2>&1 </dev/null &
  manager=$!
  note "libretto ${args[*]}"
  if [ -n "$webhook" ]; then
    expect 30 "the admission webhook has its certificate" differs '' kubectl get validatingwebhookconfiguration libretto-validating-webhook-configuration -o 'jsonpath={.webhooks[0].clientConfig.caBundle}'
  fi
  kill -0 "$manager" 2>/dev/null || die "libretto manager ended"
}

# start_kubelet_stand_in marks pods as running: the cluster has no node, and the demo is not about pods.
start_kubelet_stand_in() {
  note "the cluster has no node; the demo stands in for the kubelet and marks pods as ready"
  (
    while sleep 0.3; do
      kubectl -n "$ns" get pods -o go-template='{{range .items}}{{if ne .status.phase "Running"}}{{.metadata.name}}{{"\n"}}{{end}}{{end}}' |
        while read -r pod; do
          kubectl -n "$ns" patch pod "$pod" --subresource=status --type=merge \
            -p '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}' || true # it may be gone
        done || true
    done
  ) >/dev/null 2>&1 &
  stand_in=$!
}

stop() { # PID: ends a process and waits for it
  [ -n "$1" ] || return 0
  kill "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

# claim_cluster makes sure that a cluster which is not ours has nothing that the demo would replace and then remove.
claim_cluster() {
  local name
  if kubectl get crd operatordefinitions.libretto.dev >/dev/null 2>&1; then
    die "this cluster has Libretto already; the demo installs it and removes it again: use another cluster"
  fi
  for name in "$ns" libretto-system; do
    ! kubectl get namespace "$name" >/dev/null 2>&1 || die "this cluster has a namespace $name already; the demo makes and removes one of that name"
  done
  for name in alice-system team-namespace-system webapp-system guestbook-system platform-system hello-system; do
    kubectl get namespace "$name" >/dev/null 2>&1 || namespaces+=("$name")
  done
  claimed=1
}

# remove_all removes from a cluster that is not ours what the demo made there.
remove_all() {
  local file name
  kubectl delete namespace "$ns" --ignore-not-found --timeout=90s || true
  for file in "${definitions[@]}"; do
    kubectl delete -f "$file" --ignore-not-found --timeout=60s || true
  done
  while read -r file name; do
    libretto rbac "$file" --definition "$name" | kubectl delete --ignore-not-found -f - || true
  done <"$work/rights"
  stop "$manager"
  [ ${#namespaces[@]} = 0 ] || kubectl delete namespace "${namespaces[@]}" --ignore-not-found --timeout=60s || true
  kubectl delete -k hack/demo --ignore-not-found --timeout=60s || true
}

finished() {
  done_all=1
  title "Done"
  note "$passed checks passed in $((SECONDS - began))s"
}

leave() {
  local status=$?
  trap - EXIT INT TERM
  stop "$stand_in"
  if [ -n "$keep" ] && [ -n "$done_all" ]; then
    cat <<TXT

The cluster and Libretto are running still:

  export KUBECONFIG=${KUBECONFIG:-} PATH=$work/bin:\$PATH
  kubectl get opdef

The cluster has no node: pods stay pending, so what waits for them is not ready. Libretto needs not be deployed; it runs here.

Libretto's log: $work/manager.log
To end it:      kill $manager${devcluster:+; $devcluster down --dir $work/cluster}; rm -rf $work
TXT
    exit "$status"
  fi
  if [ -n "$claimed" ]; then
    title "Clean up"
    remove_all 2>&1 | indent
  fi
  stop "$manager"
  if [ -n "$devcluster" ]; then "$devcluster" down --dir "$work/cluster" >"$work/down.log" 2>&1 || { cat "$work/down.log"; status=1; }; fi
  rm -rf "$work"
  exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
