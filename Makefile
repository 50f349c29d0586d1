# mNi Cloud. `make help` lists the targets.
SHELL := /bin/bash
GO ?= go
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)

KUBE_VERSION = $(shell sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\)$$/\1/p' distro/kube/go.mod)
KUBE_LDFLAGS = -s -w $(foreach p,k8s.io/component-base/version k8s.io/client-go/pkg/version,\
	-X $(p).gitVersion=$(KUBE_VERSION) -X $(p).gitMajor=1 -X $(p).gitMinor=$(word 2,$(subst ., ,$(KUBE_VERSION))) \
	-X $(p).gitCommit=embedded -X $(p).gitTreeState=clean -X $(p).buildDate=1970-01-01T00:00:00Z)

# Rooms with an API: CRDs go to <room>/config/crd.
API_ROOMS = network services/vpc services/ctr

# Build tools come from tools/, a module of its own, at pinned versions.
bin/tools/%: tools/go.mod tools/go.sum
	@mkdir -p bin/tools && cd tools && CGO_ENABLED=0 $(GO) build -o ../$@ $$($(GO) list -f '{{.ImportPath}}' tool | grep '/$*$$')

.PHONY: generate
generate: bin/tools/controller-gen ## Write generated code (deepcopy, CRDs) anew
	@for room in $(API_ROOMS); do \
	  bin/tools/controller-gen object paths=./$$room/api/... && \
	  bin/tools/controller-gen crd paths=./$$room/api/... output:crd:dir=$$room/config/crd || exit 1; done
