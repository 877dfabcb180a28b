# Every target sets up what it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
# The demo needs the standard library and these two, so it sets up in seconds.
DEMO := .cache/demo
DEMO_NEEDS := click rich
# mkdocs has an environment of its own, so that no test waits for it to be installed.
SITE := .cache/mkdocs

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint types unit bench simulate soak attack test-dynamodb-local docs site reference format clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 21

define check-python
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 ..."; exit 1; }
endef

$(READY): pyproject.toml constraints.txt
	$(check-python)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

$(DEMO)/.ready: constraints.txt
	$(check-python)
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(DEMO_NEEDS)
	@touch $@

$(SITE)/.ready: pyproject.toml constraints.txt
	$(check-python)
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

demo: $(DEMO)/.ready ## Four processes share one SQLite file; shows that the limits hold
	PYTHONPATH=src $(DEMO)/bin/python -m zae_limiter.cli demo

test: lint types unit ## Style, types and all tests that are quick

test-slow: $(READY) ## The other tests: many processes, the existing package, long simulations
	$(BIN)/pytest -n $(WORKERS) -m slow

lint: $(READY) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check types
	$(BIN)/mypy

unit: $(READY) ## Run the tests that are quick
	$(BIN)/pytest -n $(WORKERS) -m "not slow"

test-dynamodb-local: $(READY) ## Run the DynamoDB tests on AWS's own DynamoDB Local
	ZAEL_TEST_DYNAMODB_SERVER=dynamodb-local $(BIN)/pytest -n $(WORKERS) tests/wire tests/dynamodb tests/flows -k "wire or dynamodb"

soak: $(READY) ## Let processes and faults loose on a DynamoDB for long (DURATION=60, in seconds)
	ZAEL_SOAK_SECONDS=$(or $(DURATION),60) $(BIN)/pytest tests/dynamodb/test_processes.py tests/dynamodb/test_faults.py -k "processes or clients"
	ZAEL_OLD_BUCKETS=100000 $(BIN)/pytest tests/dynamodb/test_migrations.py -k each_bucket_once
	ZAEL_STREAM_STEPS=3000 $(BIN)/pytest -m slow tests/dynamodb/test_aggregate_command.py -k many_steps
	ZAEL_TEST_DYNAMODB_SERVER=dynamodb-local ZAEL_STREAM_STEPS=20000 $(BIN)/pytest -m slow tests/dynamodb/test_aggregate_command.py

attack: $(READY) ## Attack with processes, servers, proxies and clocks, for long (DURATION=600, in seconds)
	$(BIN)/python -m tests.attacks --seconds $(or $(DURATION),600)

simulate: $(READY) ## Many more simulated interleavings than `make test` runs (SEEDS=20000)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),20000)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),20000) --stream

bench: $(READY) ## Compare with other limiters: tables, and JSON in bench/results
	$(BIN)/python -m bench

docs: $(READY) site ## Run every example in README.md and docs/, and build the site
	$(BIN)/pytest -q tests/docs

site: $(SITE)/.ready ## Build the documentation's site into .cache/site; links and anchors are checked
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 $(SITE)/bin/mkdocs build --strict

reference: $(READY) ## Write the generated pages: reference, command line, records, policies on AWS
	$(BIN)/python -m tests.docs.api_reference
	$(BIN)/python -m tests.docs.cli_reference
	$(BIN)/python -m tests.docs.aws_policies
	$(BIN)/python -m tests.docs.record_reference

format: $(READY) ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
