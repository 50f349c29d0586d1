# mNi Cloud. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

GO ?= go
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
NODES ?= 2
INSTANCE ?= default
# What `go test` gets in every target: `make test GOTESTFLAGS=-v`.
GOTESTFLAGS ?=

# One set of flags for builds, vet, lint and tools, so that each package is compiled once. Only the race detector needs cgo.
export CGO_ENABLED := 0
export GOFLAGS := $(strip $(GOFLAGS) -trimpath)

MODULE = github.com/mnicloud/mnicloud
LDFLAGS = -s -w -X $(MODULE)/kit/version.version=$(VERSION)

KUBE_VERSION = $(shell sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\)$$/\1/p' distro/kube/go.mod)
KUBE_LDFLAGS = -s -w $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
	-X $(p).gitVersion=$(KUBE_VERSION) -X $(p).gitMajor=1 -X $(p).gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION))) \
	-X $(p).gitCommit=embedded -X $(p).gitTreeState=clean -X $(p).buildDate=1970-01-01T00:00:00Z)

# Rooms with an API: CRDs go to <room>/config/crd.
API_ROOMS = network services/auth services/vpc services/ctr

# One version of the eBPF compiler, so that the objects checked in can be proven fresh.
CLANG ?= clang-14
LLVM_STRIP ?= llvm-strip-14

# Tests with this tag start a cloud or a root file system of their own; all others are unit tests.
SYSTEM_TESTS = -tags e2e -count=1

# The race detector. Of passwords' hashes the cipher's inner loop, which shares nothing, does without: it would take ten times as long.
RACE = -race -gcflags=golang.org/x/crypto/blowfish=-race=false
# A process with it waits a second when it ends, for late reports; tests start hundreds of processes, plugins and daemons.
export GORACE := atexit_sleep_ms=50
# Packages whose tests count lost packets or time answers: they run one at a time, with the machine to themselves.
ALONE = $(addprefix $(MODULE)/network/,datapath daemon inspect bgp/bird)

# Of the nodes' daemons what packets show, once more with clsact filters, which kernels without tcx have.
CLSACT_TESTS = TwoVPCs|OneAddressOnOneNode|OrdinaryPodsReach|ComesBackCannot|RouteTable|HostPort|SecurityGroup|PoliciesSurvive|NetworkPoliciesSelect|FloatingIP|NATGateway

# Runs a command and notes in build/durations how long it took (docs/budget.md).
STEP = hack/step

##@ Everyday

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: up
up: install build ## Install what is missing, build, start a two-node cloud, run the quick start
	@bin/mni up --nodes $(NODES) --instance $(INSTANCE) --no-hints
	@hack/quickstart $(INSTANCE)

.PHONY: down
down: ## Stop the cloud; its state stays for the next `make up`
	@bin/mni down --instance $(INSTANCE)

.PHONY: reset
reset: ## Stop the cloud and delete its state
	@bin/mni reset --instance $(INSTANCE)

##@ Build

.PHONY: build
build: go-check kube binaries images ## Build every binary into bin/ and the images into build/images

.PHONY: go-check
go-check:
	@hack/go-check $(GO)

# The embedded Kubernetes takes half an hour of CPU from nothing, so it is built only when its sources (or the Go version)
# differ from what the binaries were built from.
.PHONY: kube
kube: KUBE_SUM = $(shell { $(GO) version; cd distro/kube && find cmd go.mod go.sum -type f | LC_ALL=C sort | xargs sha256sum; } | sha256sum | cut -c1-16)
kube:
	@mkdir -p bin
	@sum=$$(cat "$$(readlink -f bin/mni-kube).sum" 2>/dev/null || true); \
	if [ ! -x bin/mni-kube ] || [ ! -x bin/mni-coredns ] || [ "$$sum" != "$(KUBE_SUM)" ]; then \
	  echo "building the embedded Kubernetes $(KUBE_VERSION) (from nothing about 15 minutes on two cores)"; \
	  (cd distro/kube && $(GO) build -ldflags "$(KUBE_LDFLAGS)" -o ../../bin/ ./cmd/mni-kube ./cmd/mni-coredns); \
	  echo "$(KUBE_SUM)" > "$$(readlink -f bin/mni-kube).sum"; \
	fi

.PHONY: binaries
binaries: go-check
	@mkdir -p bin && if ls cmd/*/main.go >/dev/null 2>&1; then $(GO) build -ldflags "$(LDFLAGS)" -o bin/ ./cmd/...; fi

# Programs of images carry no commit (-buildvcs=false), so that a commit that does not touch them changes no image.
.PHONY: images
images: install
	@$(GO) build -buildvcs=false -ldflags "-s -w" -o bin/ ./distro/images/pause ./examples/whoami
	@bin/mni image build --out build/images

.PHONY: install
install: binaries ## Install the missing Debian packages, starting no service
	@bin/mni host install

.PHONY: install-dev
install-dev: binaries
	@bin/mni host install --development

# Build tools come from tools/, a module of its own, at pinned versions.
bin/tools/%: tools/go.mod tools/go.sum
	@mkdir -p bin/tools && cd tools && $(GO) build -o ../$@ $$($(GO) list -f '{{.ImportPath}}' tool | grep '/$*$$')

.PHONY: generate
generate: bin/tools/controller-gen ## Write generated code (deepcopy, CRDs, roles, eBPF objects, references) anew
	@for room in $(API_ROOMS); do \
	  bin/tools/controller-gen object paths=./$$room/api/...; \
	  rm -f $$room/config/crd/*.yaml; \
	  bin/tools/controller-gen crd paths=./$$room/api/... output:crd:dir=$$room/config/crd; \
	  bin/tools/controller-gen rbac:roleName=mni-$$(basename $$room)-controller paths=./$$room/controller output:rbac:dir=$$room/config/rbac; done
	@bin/tools/controller-gen rbac:roleName=mni-netd,fileName=netd.yaml paths=./network/daemon output:rbac:dir=network/config/rbac
	@bin/tools/controller-gen rbac:roleName=mni-bgpd,fileName=bgpd.yaml paths=./network/bgp output:rbac:dir=network/config/rbac
	@bin/tools/controller-gen rbac:roleName=mni-dns,fileName=dns.yaml paths=./network/dns output:rbac:dir=network/config/rbac
	@BPF2GO_CC=$(CLANG) BPF2GO_STRIP=$(LLVM_STRIP) $(GO) generate ./...
	@$(GO) run ./hack/apireference --out docs/reference $(addsuffix /config/crd,$(API_ROOMS))
	@env -u MNI_INSTANCE $(GO) run ./cmd/mni docs docs/reference/cli

##@ Check

.PHONY: lint
lint: bin/tools/golangci-lint ## Run go vet and golangci-lint on every module
	@$(GO) vet -tags e2e ./...
	@bin/tools/golangci-lint run ./...
	@cd distro/kube && $(GO) vet ./...

.PHONY: test
test: ## Everything CI runs: build, generated code, lint, unit tests, a real two-node cloud
	@rm -f build/durations
	@$(STEP) "build" $(MAKE) build
	@$(STEP) "development packages" $(MAKE) install-dev
	@$(STEP) "generated code is fresh" hack/verify-generated
	@$(STEP) "lint" $(MAKE) lint
	@$(STEP) "unit tests" $(MAKE) test-unit
	@$(STEP) "packages in a bare Debian" $(MAKE) test-packages
	@$(STEP) "two-node cloud" $(MAKE) test-e2e
	@hack/step --summary

.PHONY: test-unit
test-unit: ## Unit tests, with the race detector, and 100,000 requests across tenants without it
	@CGO_ENABLED=1 $(GO) test $(RACE) -p 2 -run '^$$' ./... >/dev/null # compile first: tests with deadlines then have the machine
	@export CGO_ENABLED=1; result=0; \
	$(GO) test $(RACE) -p 2 -timeout 20m $(GOTESTFLAGS) $$($(GO) list ./... | grep -vxF $(ALONE:%=-e %)) || result=1; \
	$(GO) test $(RACE) -p 1 -timeout 20m $(GOTESTFLAGS) $(ALONE) || result=1; \
	MNI_TEST_CLSACT=1 $(GO) test $(RACE) -timeout 20m $(GOTESTFLAGS) -run '$(CLSACT_TESTS)' ./network/daemon || result=1; \
	MNI_GATEWAY_FUZZ=100000 CGO_ENABLED=0 $(GO) test -count=1 $(GOTESTFLAGS) -run 'TestNoRequestCrosses' ./platform/gateway || result=1; \
	exit $$result

.PHONY: test-packages
test-packages: ## The package step and the preflight in a bare Debian root
	@$(GO) test $(SYSTEM_TESTS) -timeout 20m $(GOTESTFLAGS) ./test/packages/...

.PHONY: test-e2e
test-e2e: ## A real two-node cloud, an instance of its own beside yours
	@$(GO) test $(SYSTEM_TESTS) -timeout 50m -parallel 3 $(GOTESTFLAGS) ./test/e2e/...

.PHONY: conformance
conformance: build ## Kubernetes' own Conformance tests of the network, on a cloud of their own (GOTESTFLAGS=-short: a sixth of them)
	@cd distro/kube && porter=$$($(GO) list -m -f '{{.Dir}}' k8s.io/kubernetes)/test/images/agnhost/porter && \
	install -m 644 "$$porter/localhost.crt" ../../bin/agnhost.crt && install -m 644 "$$porter/localhost.key" ../../bin/agnhost.key
	@cd distro/kube && $(GO) build -o ../../bin/agnhost k8s.io/kubernetes/test/images/agnhost && $(GO) test -c -vet=off -tags conformance -o ../../bin/conformance.test ./conformance
	@$(GO) test $(SYSTEM_TESTS) -timeout 90m -v $(GOTESTFLAGS) ./test/conformance/...

.PHONY: soak
soak: build ## Run the cloud for long under change and failure (SOAK=30m), and 1,000 VPCs of one CIDR (VPCS=1000)
	@VPCS=$${VPCS:-1000} $(GO) test -count=1 -timeout 0 -v $(GOTESTFLAGS) -run 'TestManyVPCs' ./network/daemon
	@SOAK=$${SOAK:-30m} $(GO) test -count=1 -timeout 0 -v $(GOTESTFLAGS) -run 'TestAnUpgrade' ./network/datapath
	@NAT_STEPS=$${NAT_STEPS:-100000} $(GO) test -count=1 -timeout 0 -v $(GOTESTFLAGS) -run 'TestWhateverHappensFlows' ./network/datapath
	@CGO_ENABLED=1 MODEL_STEPS=$${MODEL_STEPS:-10000} $(GO) test $(RACE) -count=1 -timeout 0 -v $(GOTESTFLAGS) -run 'TestWhateverHappens' ./network/controller
	@GRAPHS=$${GRAPHS:-1000000} $(GO) test -count=1 -timeout 0 -v $(GOTESTFLAGS) -run 'TestOfTenThousandGraphs' ./platform/dependency/...
	@MNI_GATEWAY_FUZZ=$${FUZZ:-1000000} $(GO) test -count=1 -timeout 0 -v $(GOTESTFLAGS) -run 'TestNoRequestCrosses' ./platform/gateway
	@SOAK=$${SOAK:-30m} $(GO) test $(SYSTEM_TESTS) -timeout 0 -v $(GOTESTFLAGS) ./test/soak/...

.PHONY: bench
bench: build ## Measure start time, idle cost, the datapath, the controllers, the plugin, the gateway and the rules of admission
	@$(GO) test -run '^$$' -bench . -timeout 30m $(GOTESTFLAGS) ./network/datapath
	@$(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m $(GOTESTFLAGS) ./network/controller
	@$(GO) test -run '^$$' -bench Add -benchtime 300x -timeout 30m $(GOTESTFLAGS) ./network/daemon
	@$(GO) test -run '^$$' -bench Latency -benchtime 2000x -timeout 30m $(GOTESTFLAGS) ./cmd/mni-gateway
	@$(GO) test -run '^$$' -bench Watchers -benchtime 1x -timeout 30m $(GOTESTFLAGS) ./cmd/mni-gateway
	@$(GO) test -run '^$$' -bench . -benchtime 1000x -timeout 30m $(GOTESTFLAGS) ./distro/manifests
	@$(GO) test $(SYSTEM_TESTS) -timeout 60m -v $(GOTESTFLAGS) ./test/bench/...

.PHONY: guest
guest: build ## A cloud of one node in a virtual machine with Debian 12's own kernel and control groups of version 2; the datapath's packets there
	@test/guest/run.sh
	@network/datapath/guest/run.sh $(GUEST_TESTS)

.PHONY: clean
clean: ## Delete what was built (not the state of a cloud)
	@rm -rf bin build
