SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
RUNS := $(VENV)/.runs
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -q
# A file stays with one worker, in the order of collection: its fixtures and programs are made once.
SHARED_OUT := -n $(WORKERS) --dist loadfile --no-loadscope-reorder

RESOLVE := .cache/lock/bin/uv pip compile pyproject.toml --quiet --universal --fork-strategy fewest \
	--python-version 3.11 --generate-hashes --no-emit-index-url --no-header

# Compiled modules and programs are kept, and all in one place.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/.cache/python
export JAX_COMPILATION_CACHE_DIR ?= $(CURDIR)/.cache/jax
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0.2

.PHONY: help env wheel demo test test-job test-slow test-kube bench lint types lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

# uv installs in a tenth of pip's time, but reads none of its configuration: where it finds no index, pip installs.
install = $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps $(1) \
	|| $(BIN)/python -m pip install --quiet --no-deps --no-compile $(1)
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

env: $(STAMP) ## create .venv with the locked versions and this project

$(STAMP): requirements.lock $(RUNS)
	$(call install,-r requirements.lock)
	@touch $@

# Half of the versions are needed for development only.
$(RUNS): requirements-run.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' \
		|| { echo "$(PYTHON) is not Python 3.11 or 3.12: call make with PYTHON=<path to one>" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	awk '/^[a-z]/ {of_uv = /^uv==/} of_uv' requirements-run.lock > $(VENV)/uv.txt
	$(BIN)/python -m pip install --quiet --no-deps -r $(VENV)/uv.txt || true
	$(call install,-r requirements-run.lock)
	$(call install,--no-build-isolation -e .)
	@touch $@

wheel: env ## build the wheel into dist/ and try it in an empty environment
	rm -rf dist .cache/wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(PYTHON) -m venv .cache/wheel
	.cache/wheel/bin/python -m pip install --quiet dist/*.whl
	cd .cache/wheel && bin/schedtwin --version && bin/python -c 'import offline_rl.runner'
	@ls dist/*.whl

demo: $(RUNS) ## run the main job on a log archive the project generates itself
	$(BIN)/schedtwin run --force --out demo-out # whatever its twin's certificate says

test: env ## the quick tests
	$(PYTEST) -m "not slow" $(SHARED_OUT)

test-job: env ## the main job as small as it can be, all of its products looked at
	$(PYTEST) tests/evaluation/test_pipeline.py

test-slow: env ## the slow tests
	$(PYTEST) -m slow $(SHARED_OUT)

test-kube: env ## the server beside a real kube-scheduler; FOLDER=path holds kube-apiserver, kube-scheduler, etcd
	KUBE_FOLDER="$(abspath $(FOLDER))" $(PYTEST) -m slow tests/kube

bench: env ## speed and memory figures, as ratios within one run
	@for file in tests/benchmarks/bench_*.py; do \
		echo "== $$file"; $(BIN)/python -m tests.benchmarks.$$(basename $$file .py); \
	done

lint: env ## ruff: rules and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: env ## mypy over the four packages
	$(BIN)/mypy

lock: ## resolve the lock files anew (exact versions and hashes, every extra but ray)
	$(PYTHON) -m venv .cache/lock
	.cache/lock/bin/python -m pip install --quiet uv
	$(RESOLVE) --upgrade --extra train --extra onnx --extra serve --extra sign --extra runner --extra adapters --extra orchestrate --extra dev \
		--output-file requirements.lock
	$(RESOLVE) --extra train --extra onnx --extra build --constraint requirements.lock --output-file requirements-run.lock

clean: ## remove everything that make creates
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist demo-out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
