# Everything that is run by hand or by CI. `make help` lists the targets.
# Needs GNU make and Go; a C compiler is used where there is one. No network but for module downloads.

SHELL := /bin/sh
.DEFAULT_GOAL := build

GO   ?= go
PKGS ?= ./...
BIN  := bin/llm_canary_exporter
MAIN := ./cmd/llm_canary_exporter

# Extra flags for go test: make test GOTESTFLAGS='-run TestX -v'
GOTESTFLAGS ?=
# How long each fuzz target runs.
FUZZTIME ?= 1m

# --- cgo: GPU sampling through NVML needs it; everything else works without ---------------------------------------
GOOS_   := $(shell $(GO) env GOOS 2>/dev/null)
CC_     := $(firstword $(shell $(GO) env CC 2>/dev/null))
HAVE_CC := $(shell command -v $(if $(CC_),$(CC_),cc) >/dev/null 2>&1 && echo yes)
ifeq ($(origin CGO_ENABLED),undefined)
  CGO_ENABLED := $(if $(HAVE_CC),1,0)
  ifneq ($(HAVE_CC),yes)
    CGO_NOTE := note: no C compiler ($(if $(CC_),$(CC_),cc)): building with CGO_ENABLED=0, without GPU sampling
  endif
endif
export CGO_ENABLED
# go-nvml binds functions that NVIDIA's own header calls deprecated: a screenful of warnings that says nothing here.
export CGO_CFLAGS ?= -g -O2 -Wno-deprecated-declarations

# go-nvml leaves its symbols undefined until the library is loaded at run time, so they have to be bound lazily,
# also where the toolchain defaults to immediate binding.
EXTLDFLAGS :=
ifeq ($(CGO_ENABLED)-$(GOOS_),1-linux)
  EXTLDFLAGS := -extldflags=-Wl,-z,lazy
endif

# --- version: from the VERSION file, and from git where this folder is the top of a checkout ----------------------
VERSION := $(shell cat VERSION 2>/dev/null)
IN_GIT  := $(shell test -z "$$(git rev-parse --show-prefix 2>&1)" && git rev-parse -q --verify HEAD >/dev/null 2>&1 && echo yes)
ifeq ($(IN_GIT),yes)
  REVISION ?= $(shell git rev-parse HEAD)
  BRANCH   ?= $(shell git rev-parse --abbrev-ref HEAD)
  EPOCH    := $(shell git log -1 --format=%ct)
endif
REVISION ?= unknown
BRANCH   ?= unknown
# The same source gives the same bytes: the date is that of the commit (or SOURCE_DATE_EPOCH), the user is fixed.
SOURCE_DATE_EPOCH ?= $(EPOCH)
BUILD_DATE := $(if $(SOURCE_DATE_EPOCH),$(shell date -u -d '@$(SOURCE_DATE_EPOCH)' '+%Y%m%d-%H:%M:%S' 2>/dev/null || date -u -r '$(SOURCE_DATE_EPOCH)' '+%Y%m%d-%H:%M:%S'),unknown)
BUILD_USER ?= make

V := github.com/prometheus/common/version
VERSION_LDFLAGS := -X $(V).Version=$(VERSION) -X $(V).Revision=$(REVISION) -X $(V).Branch=$(BRANCH) \
  -X $(V).BuildUser=$(BUILD_USER) -X $(V).BuildDate=$(BUILD_DATE)

# Further flags for the linker: make build LDFLAGS='-s -w' leaves the debug tables out.
LDFLAGS ?=

# Revision and date come in through the linker, so that a checkout that git refuses to read still builds.
BUILD_FLAGS := -trimpath -buildvcs=false -ldflags '$(strip $(EXTLDFLAGS) $(LDFLAGS) $(VERSION_LDFLAGS))'
TEST_FLAGS  := $(if $(EXTLDFLAGS),-ldflags=$(EXTLDFLAGS))

# --- tools: built once from their own module into .tools/bin ------------------------------------------------------
TOOLS      := $(CURDIR)/.tools/bin
TOOLS_DONE := .tools/tools.done

# What manifests and packages are checked and made with: helm, kustomize, kubeconform, nfpm.
DEPLOY_TOOLS_DONE := .tools/deploy-tools.done

.PHONY: help run build test race lint bench fuzz fmt e2e docs dist deploy-tools clean check-go

help: ## show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: build ## build, then start the demo: a simulated engine, the daemon that probes it, /metrics on :9877
	$(BIN) demo

build: check-go ## build bin/llm_canary_exporter
	$(GO) build $(BUILD_FLAGS) -o $(BIN) $(MAIN)

test: check-go ## run all tests
	$(GO) test $(TEST_FLAGS) $(GOTESTFLAGS) $(PKGS)

race: check-go ## run all tests under the race detector (needs a C compiler)
	@test '$(CGO_ENABLED)' = 1 || { echo 'make race: the race detector needs cgo: install a C compiler (gcc or clang), and do not set CGO_ENABLED=0' >&2; exit 1; }
	$(GO) test -race $(TEST_FLAGS) $(GOTESTFLAGS) $(PKGS)

lint: $(TOOLS_DONE) ## run the linters, the import rules and the format check
	'$(TOOLS)/golangci-lint' run --allow-parallel-runners $(PKGS)
	scripts/check-import-rules.sh '$(TOOLS)/golangci-lint'

fmt: $(TOOLS_DONE) ## format the code (gofumpt, imports in groups)
	'$(TOOLS)/golangci-lint' fmt $(PKGS)

bench: check-go ## run the benchmarks
	$(GO) test $(TEST_FLAGS) -run '^$$' -bench . -benchmem $(GOTESTFLAGS) $(PKGS)

fuzz: check-go ## run every fuzz target for FUZZTIME each (default 1m)
	GO='$(GO)' GOTESTFLAGS='$(TEST_FLAGS)' scripts/fuzz.sh '$(FUZZTIME)'

e2e: build ## run scripts/e2e/*.sh against the built binary
	scripts/e2e.sh

docs: check-go ## regenerate the generated docs (go generate) and the dashboards
	$(GO) generate $(PKGS)
	cd dashboards/gen && CGO_ENABLED=0 $(GO) run -mod=mod .

dist: check-go $(DEPLOY_TOOLS_DONE) ## build archives, .deb, .rpm and checksums into dist/ (DIST='linux/amd64' for some)
	scripts/dist.sh $(DIST)

clean: ## remove what was built, the tools included
	rm -rf bin dist .tools coverage.out

$(TOOLS_DONE): tools/go.mod tools/go.sum | check-go
	@echo 'building the linters once, from tools/go.mod: this takes minutes'
	cd tools && CGO_ENABLED=0 GOBIN='$(TOOLS)' $(GO) install -trimpath -buildvcs=false tool
	@touch $@

deploy-tools: $(DEPLOY_TOOLS_DONE)

$(DEPLOY_TOOLS_DONE): deploy/tools/go.mod deploy/tools/go.sum $(wildcard deploy/tools/*/*.go) | check-go
	@echo 'building helm, kustomize, kubeconform and nfpm once, from deploy/tools/go.mod: this takes minutes'
	cd deploy/tools && CGO_ENABLED=0 GOBIN='$(TOOLS)' $(GO) install -trimpath -buildvcs=false -ldflags=-s tool ./...
	@touch $@

check-go:
	@scripts/check-go.sh '$(GO)'
	@$(if $(CGO_NOTE),echo '$(CGO_NOTE)' >&2,:)
