# Environments are made in .venv and made again only when pyproject.toml changes.
# PYTHON= names another interpreter, ARGS= passes options on to the demo.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,\
  $(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
DEV := $(VENV)/.installed-dev
# Who has the development environment has all that the demo and the notebooks need.
DEMO := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.installed-demo)
RUNS := $(if $(wildcard $(DEV)),$(DEV),$(VENV)/.installed-binder)

# One worker for each core, up to eight; a file stays with one, so that what it shares is made once.
# Compiled programs are kept from test to test, and from run to run.
KEEPING = JAX_COMPILATION_CACHE_DIR=$(CURDIR)/build/programs \
  JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1
TYPES = $(BIN)/dmypy run -- distlab dashboard examples tests
PYTEST = $(BIN)/python -m pytest -q -n logical --maxprocesses 8 --dist loadfile

.PHONY: help demo check test lint browser bench bench-recording bench-records bench-workers bench-coordinator bench-dashboard bench-shares test-matrix soak conformance docs notebooks screenshots binder-check clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.installed-%: pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
	  echo "distlab needs Python 3.11 or newer; none was found. Try: make PYTHON=/path/to/python3.11 ..." >&2; \
	  exit 1; fi
	@echo "Installing distlab[$*] into $(VENV) (once; a few minutes at most)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --editable ".[$*]"
	@touch $@

demo: $(DEMO)  ## Train on 8 CPU devices and watch it live (options: ARGS="--port 5010")
	@$(BIN)/distlab demo $(ARGS)

check: $(DEV)  ## Run ruff, mypy's daemon and the quick tests (3 minutes on two cores)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(TYPES) || { [ $$? -eq 2 ] && $(BIN)/dmypy kill >/dev/null && $(TYPES); }  # it may crash
	@$(KEEPING) $(PYTEST) --quick $(ARGS)

test: lint browser  ## Run ruff, mypy and all tests, browser tests included
	@$(KEEPING) $(PYTEST) --durations=50 --junitxml=build/tests.xml $(ARGS)

lint: $(DEV)  ## Run ruff and mypy
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy distlab dashboard examples tests

browser: $(DEV)
	@.ci/browser $(BIN)

bench: $(DEV)  ## Compare dispatch, training and input with raw JAX (minutes)
	@$(BIN)/python -m tests.bench.run $(ARGS)
	@$(BIN)/python -m tests.bench.keras_loop

bench-recording: $(DEV)  ## Measure what recording costs and how fast long runs are read
	@$(BIN)/python -m tests.bench.recording $(ARGS)

bench-shares: $(DEV)  ## Compare the advised share of a slow replica with the clock (2 minutes)
	@$(BIN)/python -m tests.bench.shares $(ARGS)

bench-records: $(DEV)  ## Measure how fast records and examples are read
	@$(BIN)/python -m tests.bench.records $(ARGS)

bench-workers: $(DEV)  ## Compare training in several processes with raw jax.distributed
	@$(BIN)/python -m tests.bench.workers $(ARGS)

bench-coordinator: $(DEV)  ## Measure closures a second, also beside TensorFlow's
	@$(BIN)/python -m tests.bench.coordinator $(ARGS)

bench-dashboard: $(DEV) browser  ## Measure how soon a page shows an event, and what viewers cost
	@$(BIN)/python -m tests.bench.dashboard $(ARGS)

test-matrix:  ## Run a smoke set of the tests with other Pythons and versions (20 minutes each)
	@.ci/test-matrix $(ARGS)

soak: $(DEV)  ## 430 kills, 1,000 interrupts, a minute at 50,000 events/s, 2,000 damaged files, memory (75 minutes)
	@$(BIN)/python -m tests.soak.run $(ARGS)

conformance: $(DEV)  ## Run the programs recorded with TensorFlow 2.21, in both modes
	@status=0; for mode in eager traced; do \
	  echo "conformance, $$mode mode:"; \
	  $(BIN)/python tests/conformance/check.py --impl distlab --path . --mode $$mode $(ARGS) || status=1; \
	done; exit $$status

docs: $(VENV)/.installed-docs $(if $(filter off,$(NOTEBOOKS)),,$(RUNS))  ## Build the site into build/site; a warning or a failing notebook is an error (NOTEBOOKS=off: with their stored outputs)
	@$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going \
	  $(if $(filter off,$(NOTEBOOKS)),--define nb_execution_mode=off) \
	  --doctree-dir build/doctrees docs build/site $(ARGS)
	@echo "Built build/site/index.html"

notebooks: $(DEV) browser  ## Run the notebooks and store them with their outputs (all, or ARGS="01 07")
	@PYTHONPATH=$(CURDIR) $(BIN)/python docs/site/store.py $(ARGS)

screenshots: $(DEV) browser  ## Take the pictures and the film in docs/pictures from real trainings
	@$(BIN)/python docs/pictures/take.py
	@$(BIN)/python docs/pictures/film.py

binder-check: $(DEV) browser  ## Build what Binder builds and visit it with a browser (5 minutes)
	@.ci/binder-check $(BIN)

clean:  ## Remove the environment, caches and build output; recorded runs stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
