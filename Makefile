# Two commands do everything on a fresh machine with Python 3.11: `make demo` and `make test`; `make check` is the quick one.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Byte code must be written: without it every Ray worker compiles torch and its own imports again.
unexport PYTHONDONTWRITEBYTECODE
export RAY_USAGE_STATS_ENABLED := 0
# uv looks where pip was told to look.
export UV_FIND_LINKS := $(PIP_FIND_LINKS)

.PHONY: help install demo check test test-outer test-all tests-of-check tests-of-test tests-of-test-all torture lint types contracts bench fuzz mutants lock licences advisories clean

help:
	@echo "make demo      install, train three small models, audit them, print the verdict"
	@echo "make check     install, then lint, types, import contracts and the tests of units: 75 seconds on two idle cores"
	@echo "make test      the same with servers and whole audits: seven minutes"
	@echo "make test-outer  the rest of what CI runs: deployments, clusters, browsers, attacks and outages, five minutes"
	@echo "make test-all  all of these, the slow statistical and end-to-end tests, and more examples of each property"
	@echo "make torture   200 audits disturbed at a random point each, then servers, Ray and settings; COUNT=n, SEED=n"
	@echo "make mutants   changes every line of the mathematics and sees whether the tests notice: a quarter of an hour"
	@echo "make bench     speed and memory against a peer measured in the same run"
	@echo "make fuzz      every parser on mutated files, for MINUTES=5; make lock, licences, advisories: the image's parts"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "uv>=0.5"
	$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable ".[dev,bench]"
	@touch $(STAMP)

demo: install
	$(BIN)/classwise demo; status=$$?; test $$status -eq 0 -o $$status -eq 1 -o $$status -eq 3

# A file of tests stays with one worker, so that it starts its servers once; tests/conftest.py puts long files first.
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
UNITS := not (slow or long or outer or gpu or ray or server or browser or process or fleet)

# The types take as long as a third of the units and one core: side by side.
check test test-all: install
	@$(MAKE) --no-print-directory --jobs 2 lint types contracts tests-of-$@

# Libraries read it when they are loaded, before any test.
tests-of-check tests-of-test tests-of-test-all test-outer: export OMP_NUM_THREADS := 1
# Tests write tens of thousands of small files and wait 2 ms for a disk to have each: in memory, where 8 GiB are free.
tests-of-check tests-of-test tests-of-test-all test-outer: export PYTEST_DEBUG_TEMPROOT := $(shell \
	awk -v free="$$(df -Pk /dev/shm 2>/dev/null | awk 'END { print $$4 }')" \
	'/^MemAvailable/ && free > 8e6 && $$2 > 8e6 { print "/dev/shm" }' /proc/meminfo 2>/dev/null)

tests-of-check: install
	$(PYTEST) -m "$(UNITS)"

tests-of-test: install
	$(PYTEST) -m "not outer and not slow and not gpu"

test-outer: install
	$(PYTEST) -m "outer and not slow and not gpu"

tests-of-test-all: install
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m "not gpu"

COUNT ?= 200
SEED ?= 1
TORTURE := PYTHONPATH=.:tests $(BIN)/python -m torture

torture: install
	$(TORTURE) --seed $(SEED) --count $(COUNT)
	$(TORTURE) --seed $(SEED) --count 28 --on servers
	$(TORTURE) --seed $(SEED) --count 20 --on ray
	$(TORTURE).determinism --ray

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/mypy

contracts: install
	$(BIN)/lint-imports

bench: install
	$(BIN)/python -m benchmarks

fuzz: install
	$(BIN)/python tests/hostile/fuzz.py $(or $(MINUTES),5)

# docs/mutation.md has the last run. mutmut goes into build/mutation, not into the environment.
mutants: install
	PYTHONPATH=.:tests $(BIN)/python -m mutation

# What the image is made of: deploy/supply.sh says more.
lock licences: install
	deploy/supply.sh $@

advisories: install
	deploy/supply.sh audit

clean:
	rm -rf classwise-runs build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
