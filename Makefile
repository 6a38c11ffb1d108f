# Columba: `make` alone lists what there is.
# Needed: Go (the version in go.mod) and make. The race detector also needs a C compiler; `make gen` needs node's npx.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

GO        ?= go
BUF       ?= npx --yes @bufbuild/buf@1.75.0
PACKAGES  ?= ./...
FUZZTIME  ?= 20s
FAULTTIME ?= 75s
SEEDS     ?= 10000
BENCHTIME ?= 1s
CLUSTERPORT ?= 4922
CLUSTERDATA ?=
METADATA  ?= embedded
COUNT     ?= 20
NODES     ?= 1
TESTFLAGS ?=
BENCHFLAGS ?=

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X github.com/columbamq/columba/tools/cli.Version=$(VERSION)

# What one target compiles the others use: all but the tests under the race detector compile as `make build` does.
SHARED := CGO_ENABLED=0 GOFLAGS="$(strip $(shell $(GO) env GOFLAGS) -trimpath)"

# What makes tests cheaper and takes nothing from them. They have many short lives in small heaps: collecting less often takes a tenth
# off their time. No debugger looks at their binaries, nor at those they build; paths without the clone's let clones share what is
# compiled; `make lint` vets. A binary with the race detector waits a second before it exits: a tenth is enough to be told of a race.
# What the detector knows of a new block it clears, also of large ones: by default it maps fresh memory for those, which costs more.
# The node of `make cassandra` has a target of its own, since it takes a minute of both cores.
TESTENV := COLUMBA_CASSANDRA=$(or $(COLUMBA_CASSANDRA),skip) GOGC=400 GORACE="$(strip atexit_sleep_ms=100 clear_shadow_mmap_threshold=268435456 $(GORACE))" \
	GOFLAGS="$(strip $(shell $(GO) env GOFLAGS) -trimpath -ldflags=-s -vet=off)"

# Results are never taken from the cache: it does not know of what the tests build and run.

# What the race detector is not for: commands, tests whose servers and clients are processes built without it, and core/dispatch, which has
# no goroutine; a test of it holds on to that.
UNRACED := /(test/(e2e|sabotage|words|attack)|tools/(demo|cluster)|cmd/columba|bench|core/dispatch)(/|$$)

# A hundred schedules of each kind, and those that have failed before, run without the race detector; so many run under it.
RACESEEDS := 5

# HALF=1 or HALF=2 takes the tests whose names end in a … k, or the others: half of the time in the packages that take
# longest.
HALF ?=
otherhalf = $(if $(HALF),|$(if $(filter 1,$(HALF)),[^a-k],[a-k])$$)

# The detector sees the process of a test. Where the client is a command, too, nothing of Columba is in it: these of test/integration, and
# those of test/faults that say so, run without the detector only.
BYCOMMAND := ^TestRuleByCommand_

# Floods of requests, and attacks, are compared with calm: they want the machine for themselves.
ATTACKS := ^Test(Flood|Attack)_

# What takes longest begins first, also what mostly waits: test/faults and tools/demo.
longest = $(if $(filter ./...,$(PACKAGES)),./test/cluster ./test/faults ./controller ./test/integration ./storehost/extentlog ./client/clienttest)
tests = $(longest) $(if $(filter ./...,$(PACKAGES)),./tools/demo ./test/e2e ./core/dispatch ./node) $$($(GO) list $(PACKAGES) | grep -v /test/attack$$)
raced = $(longest) $$($(GO) list $(PACKAGES) | grep -vE '$(UNRACED)')

# Rings 1 to 3 are the tests that need no process but their own: all packages but these.
OUTER_RINGS := /(test/(integration|e2e|faults)|bench|tools/demo|cmd/columba)(/|$$)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/columba, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/columba ./cmd/columba

.PHONY: demo
demo: build ## run the main job on real input (the Go tree), with crashes, and verify its result
	bin/columba demo

# Nodes in bin that do not run lose their rows: the stores that these were of are deleted.
EMPTYNODES := for n in bin/cassandra/n[0-9]*; do kill -0 "$$(cat "$$n/pid" 2>/dev/null)" 2>/dev/null || rm -rf "$$n"; done

.PHONY: cluster
cluster: build ## run a whole cluster in the foreground, ports from CLUSTERPORT on, data in CLUSTERDATA or a temporary directory; METADATA=cassandra: with three Cassandra nodes
	$(GO) build -o bin/cluster ./tools/cluster
ifeq ($(METADATA),cassandra)
	@$(if $(CLUSTERDATA),:,$(EMPTYNODES))
	@echo 'Three Cassandra nodes start, at 127.9.2.1 to 127.9.2.3. This takes half a minute or more. Their process ids are in $(or $(CLUSTERDATA),bin)/cassandra/n*/pid, their logs beside them. After a kill -9 of node n1, start it again: test/cassandra/cassandra.sh again $(or $(CLUSTERDATA),bin)/cassandra n1'
	exec test/cassandra/cassandra.sh with $(or $(CLUSTERDATA),bin)/cassandra 3 scripts/cluster-on-cassandra.sh bin/columba \
	  bin/cluster -program bin/columba -port $(CLUSTERPORT) $(if $(CLUSTERDATA),-data $(CLUSTERDATA))
else
	exec bin/cluster -program bin/columba -port $(CLUSTERPORT) $(if $(CLUSTERDATA),-data $(CLUSTERDATA))
endif

.PHONY: test
test: ## all tests but attacks, about 4 minutes on 2 cores
	$(TESTENV) CGO_ENABLED=0 $(GO) test -count=1 -p 4 -timeout 600s -skip '$(ATTACKS)' $(TESTFLAGS) $(tests)

.PHONY: race
race: ## the tests of all that has goroutines under the race detector, with fewer schedules, about 10 minutes; a failure where it cannot run; HALF=1 or 2: half of them
	$(TESTENV) COLUMBA_SEEDS=$(RACESEEDS) $(GO) test -race -count=1 -p 4 -timeout 1200s \
	  -skip '$(ATTACKS)|$(BYCOMMAND)|^Test(Failed(Group)?|Divergent|Controller)Seeds$$$(otherhalf)' $(TESTFLAGS) $(raced)

.PHONY: attack
attack: ## floods and attacks of one client on a server, while nothing else runs
	$(TESTENV) CGO_ENABLED=0 $(GO) test -count=1 -p 1 -timeout 600s -run '$(ATTACKS)' $(TESTFLAGS) ./test/cluster ./test/attack

.PHONY: cassandra
cassandra: ## the store on NODES real Cassandra nodes, 1 or 3, which Maven gets the first time; a failure where there is no Java or Maven
	$(TESTENV) COLUMBA_CASSANDRA=required COLUMBA_CASSANDRA_NODES=$(NODES) $(GO) test -count=1 -race -timeout 1200s $(TESTFLAGS) ./metadata/cassandra ./test/cassandra

.PHONY: flake
flake: ## rings 1 to 3 COUNT times over with a tenth of the schedules, then the whole of `make test` three times
	$(TESTENV) COLUMBA_SEEDS=10 $(GO) test -race -count=$(COUNT) -timeout 3h $$($(GO) list $(PACKAGES) | grep -vE '$(OUTER_RINGS)')
	for i in 1 2 3; do echo "make test, run $$i of 3"; $(MAKE) test; done

.PHONY: faults
faults: ## clusters under faults: SEEDS schedules in virtual time with one, two and three controllers, real processes, builds broken on purpose, three Cassandra nodes; tables in bin/faults.md
	@mkdir -p bin && rm -f bin/faults.md
	@export COLUMBA_FAULTS=$(FAULTTIME) COLUMBA_FAULTS_REPORT=$(CURDIR)/bin/faults.md COLUMBA_CASSANDRA_NODES=3; status=0; \
	$(GO) test -count=1 -timeout 6h -run '^TestSeeds$$' ./test/cluster -many=$(SEEDS) || status=1; \
	for n in 2 3; do $(GO) test -count=1 -timeout 6h -run '^TestSeeds$$' ./test/cluster -many=$(SEEDS) -controllers=$$n -stale=0.3 || status=1; done; \
	$(GO) test -count=1 -timeout 6h -run '^TestChurn$$' ./test/cluster -churnseeds=$$(( ($(SEEDS) + 99) / 100 )) || status=1; \
	$(GO) test -count=1 -timeout 1h -run '^TestStandstill$$' ./test/cluster -stillall || status=1; \
	$(GO) test -v -count=1 -timeout 4h ./test/faults || status=1; \
	$(GO) test -v -count=1 -timeout 1h ./test/sabotage || status=1; \
	$(MAKE) cassandra NODES=3 TESTFLAGS=-v || status=1; \
	echo; cat bin/faults.md; exit $$status

.PHONY: model
model: ## check the models of docs/model with spin; MODEL=quick for the short runs only
	scripts/model.sh

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME
	for pkg in $$(git grep -lE '^func Fuzz[A-Z]' -- '*_test.go' | xargs -rn1 dirname | sort -u); do \
	  for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]+' $$pkg/*_test.go | cut -d' ' -f2); do \
	    echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) ./$$pkg; \
	  done; \
	done

.PHONY: bench
bench: build ## measure what one machine has to reach and judge it; the result goes to bench/results
	$(GO) run ./bench $(BENCHFLAGS)

.PHONY: peers
peers: ## install the brokers that benchmarks compare with into bin/peers, and build what loads them
	GO="$(GO)" bench/peers/install.sh bin/peers
	cd bench/peers && CGO_ENABLED=0 $(GO) build -trimpath -o ../../bin/peers/compare .

.PHONY: bench-peers
bench-peers: build peers ## measure Columba, NATS JetStream, Kafka and RabbitMQ in turns, 40 minutes; a run that was cut short goes on; FULL=1: more rows and rounds
	bin/peers/compare $(if $(FULL),-full) $(BENCHFLAGS)

.PHONY: test-peers
test-peers: build peers ## each driver of the comparison against a small cluster of its broker
	cd bench/peers && $(GO) vet ./... && $(GO) test -count=1 -v -timeout 1200s $(TESTFLAGS) ./...

.PHONY: bench-replicated
bench-replicated: build ## measure a cluster with three replicas
	$(GO) run ./bench -suite replicated $(BENCHFLAGS)

.PHONY: bench-consuming
bench-consuming: build ## measure consumers of a replicated queue
	$(GO) run ./bench -suite consuming $(BENCHFLAGS)

.PHONY: bench-failing
bench-failing: build ## measure what messages that fail leave of the rate of the others
	$(GO) run ./bench -suite failing $(BENCHFLAGS)

.PHONY: bench-tenants
bench-tenants: build ## measure a tenant's latency beside one that is at ten times its quota
	$(GO) run ./bench -suite tenants $(BENCHFLAGS)

.PHONY: bench-metadata
bench-metadata: build ## measure a cluster with metadata on three Cassandra nodes against one with embedded metadata, in one run
	@$(EMPTYNODES)
	test/cassandra/cassandra.sh with bin/cassandra 3 $(GO) run ./bench -suite metadata $(BENCHFLAGS)

.PHONY: bench-builds
bench-builds: build ## compare the CPU time of the output host with that of an earlier build: BEFORE=path of its columba
	$(GO) run ./bench -suite builds -before "$(BEFORE)" -pairs 7 $(BENCHFLAGS)

.PHONY: bench-micro
bench-micro: ## micro-benchmarks of every package, to stdout
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) -timeout 30m $(PACKAGES) | grep -vE '^(\?|ok|PASS)'

.PHONY: lint
lint: ## gofmt, go mod tidy, go vet, staticcheck
	@out=$$(git ls-files -co --exclude-standard '*.go' | xargs -r gofmt -l); \
	if [ -n "$$out" ]; then echo 'not formatted, run gofmt -w on:'; echo "$$out"; exit 1; fi
	$(GO) mod tidy -diff
	$(SHARED) $(GO) vet $(PACKAGES)
	$(SHARED) $(GO) tool -modfile=buildtools.mod staticcheck $(PACKAGES)

.PHONY: gen
gen: ## generate the Go code of api/proto
	cd api && $(BUF) lint && $(BUF) generate

.PHONY: verify-gen
verify-gen: gen ## fail when the committed generated code is not what api/proto makes
	@if [ -n "$$(git status --porcelain -- api/columbav1)" ]; then \
	  echo 'api/columbav1 differs from what api/proto generates; commit the result of make gen:'; \
	  git status --short -- api/columbav1; exit 1; fi

.PHONY: check
check: lint test race attack ## lint, test, race, attack, and verify-gen where npx is there
	@if command -v npx >/dev/null; then $(MAKE) verify-gen; else echo 'NOTE: no npx, generated code not verified' >&2; fi

.PHONY: clean
clean: ## remove what the other targets built
	rm -rf bin .demo
