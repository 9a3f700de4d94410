# Libretto. `make help` lists what can be made.

SHELL := /usr/bin/env bash -euo pipefail
.DEFAULT_GOAL := help

IMG ?= ghcr.io/libretto-dev/libretto:latest
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/libretto-dev/libretto/internal/version.version=$(VERSION)
KUBECTL ?= kubectl

# Tools are built when a target asks for them, from the pins in hack/tools and hack/lint, into a cache outside the tree.
controller-gen = $$(hack/tool.sh controller-gen)
kustomize = $$(hack/tool.sh kustomize)
golangci-lint = $$(hack/tool.sh golangci-lint)

##@ Start here

.PHONY: help
help: ## Show this help
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n\033[1m%s\033[0m\n", substr($$0, 5)} /^[a-zA-Z0-9_-]+:.*## / {printf "  \033[36m%-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## See it work: an embedded cluster, the examples, step by step (KEEP=1 leaves it up; CLUSTER=current uses your kubeconfig)
	@hack/demo.sh

.PHONY: build
build: bin/libretto ## Build bin/libretto

.PHONY: bin/libretto
bin/libretto:
	CGO_ENABLED=0 go build -trimpath -ldflags "$(LDFLAGS)" -o $@ .

##@ Test

.PHONY: test
test: ## Run all tests on an embedded cluster (ARGS="-run TestX ./internal/apply" for some of them)
	@hack/test.sh $(ARGS)

.PHONY: test-unit
test-unit: ## Run the tests that need no cluster
	go test -p 2 ./...

.PHONY: e2e
e2e: ## Run the end-to-end tests alone: each example, with the binary, as a user would
	@hack/test.sh -v ./test/e2e/...

.PHONY: test-node
test-node: ## Run the tests that need a node for pods, exec and Jobs (as root, after hack/devcluster/install-node-deps.sh)
	@hack/test.sh --node -run '^(TestOnNode.*|TestHello|TestWebhookLogic)$$' $(or $(ARGS),$$(git grep -l '^func TestOnNode' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|'))

.PHONY: fuzz
fuzz: ## Fuzz each parser for a while (FUZZTIME=30s)
	@hack/fuzz.sh

.PHONY: golden
golden: ## Write the golden files anew; then read the diff
	go test $$(git grep -l '"github.com/libretto-dev/libretto/internal/testkit/golden"\|flag.Bool("update"' -- '*_test.go' | xargs -n1 dirname | sort -u | sed 's|^|./|') -update

.PHONY: lint
lint: lint-scripts ## Lint Go code, API types and shell scripts; the first run looks at every dependency and takes ten minutes
	$(golangci-lint) run ./...

.PHONY: lint-fast
lint-fast: lint-scripts ## Lint with what takes seconds: all that needs no types, go vet, and everything for the API types
	$(golangci-lint) run --fast-only ./...
	$(golangci-lint) run ./api/...
	go vet ./...

.PHONY: lint-scripts
lint-scripts:
	@if command -v shellcheck >/dev/null; then git ls-files -z '*.sh' '.ci/run' | xargs -0 shellcheck -x; else echo "shellcheck is not installed: scripts not linted"; fi

##@ Generate

.PHONY: generate
generate: manifests ## Generate everything that is generated: code, manifests, reference pages
	$(controller-gen) object:headerFile=hack/boilerplate.go.txt paths=./api/...
	bin=$$(hack/devcluster/build.sh) && $$bin run -- go generate ./internal/schema
	go run ./hack/docs
	go test ./internal/cli -run TestReference -update

.PHONY: manifests
manifests: ## Generate CRDs, the Role of Libretto itself and the webhook configuration
	$(controller-gen) crd paths=./api/... output:crd:artifacts:config=config/crd/bases
	$(controller-gen) rbac:roleName=manager webhook paths=./controllers/... paths=./internal/... output:rbac:artifacts:config=config/rbac output:webhook:artifacts:config=config/webhook

.PHONY: fmt
fmt: ## Format
	$(golangci-lint) fmt ./...

.PHONY: verify
verify: generate bundle catalog ## Fail if something generated or formatted is out of date
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not formatted:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	go mod tidy -diff
	@test -z "$$(git status --porcelain)" || { echo "out of date; run make generate bundle catalog and commit:"; git status --short; git --no-pager diff --stat; exit 1; }

##@ Install

.PHONY: image
image: ## Build the manager's image for amd64 and arm64 with buildah, or for this machine with docker (IMG=..., OUT=DIR for archives)
	hack/image.sh manager --tag $(IMG) $(if $(OUT),--out $(OUT))

.PHONY: install
install: ## Install the CRDs into the cluster of the current kubeconfig
	$(kustomize) build config/crd | $(KUBECTL) apply --server-side -f -

.PHONY: uninstall
uninstall: ## Remove the CRDs, and with them all definitions
	$(kustomize) build config/crd | $(KUBECTL) delete --ignore-not-found -f -

.PHONY: deploy
deploy: ## Install Libretto into the cluster of the current kubeconfig (image: IMG)
	$(kustomize) build config/default | sed 's#ghcr.io/libretto-dev/libretto:latest#$(IMG)#' | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: ## Remove Libretto from the cluster of the current kubeconfig
	$(kustomize) build config/default | $(KUBECTL) delete --ignore-not-found -f -

##@ Package for OLM

.PHONY: bundle
bundle: ## Generate bundle/ from config/manifests and config/catalog/releases.yaml
	hack/bundle.sh

.PHONY: catalog
catalog: ## Generate catalog/ from the bundle and the ledger of releases
	hack/catalog.sh

.PHONY: bundle-image
bundle-image: ## Build the image of the bundle (OUT=DIR for archives)
	hack/image.sh bundle $(if $(OUT),--out $(OUT))

.PHONY: catalog-image
catalog-image: ## Build the image of the catalogue, with what serves it (OUT=DIR for archives)
	hack/image.sh catalog $(if $(OUT),--out $(OUT))

.PHONY: test-bundle
test-bundle: ## Check the bundle and the catalogue with operator-sdk, opm, OLM's validators and our own
	hack/test-bundle.sh

.PHONY: scorecard
scorecard: ## Run scorecard in pods, where OLM has installed Libretto (as root, after install-node-deps.sh and install-image-deps.sh)
	hack/e2e-olm.sh -test.run '^TestOLM$$/^(install|scorecard)$$'

.PHONY: e2e-olm
e2e-olm: ## Install, upgrade and remove Libretto by a real OLM on a cluster of its own (as root, after the same scripts)
	hack/e2e-olm.sh

.PHONY: release-bundle
release-bundle: ## Lay out what a pull request to community-operators needs, in dist/community-operators (DIGEST=sha256:... of the image)
	hack/release-bundle.sh $(if $(DIGEST),--digest $(DIGEST))

.PHONY: clean
clean: ## Remove what was built in the tree
	rm -rf bin dist cover.out
