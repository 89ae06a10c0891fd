# Every target makes .venv, installs what it needs and is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test test-spark docs browser sdk dist lint format audit compare clean help
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

demo: $(VENV)/run.stamp ## find the best of 16 page layouts in a drifting world
	$(BIN)/steadyarm demo

# There is a process for each core already: more threads would get in each other's way.
test: $(VENV)/dev.stamp browser ## run every test and doctest
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest

# Spark is large and needs Java, so it has an environment of its own and is no part of the tests.
SPARK := .venv-spark

test-spark: ## compare analyze on Spark in local mode with DuckDB, on a log of a million rows
	command -v java >/dev/null || apt-get install --yes --no-install-recommends default-jre-headless
	$(PYTHON) -m venv $(SPARK)
	$(SPARK)/bin/python -m pip install --quiet -c constraints.txt '.[analyze]' 'pyspark>=3.5,<5' pandas
	$(SPARK)/bin/python -m tests.analysis.compare_spark

docs: $(VENV)/dev.stamp ## build the documentation site, strictly, into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in build/site; $(BIN)/mkdocs serve shows it."

browser: | $(VENV)/bin/python ## chromium, Node and packages from npm, for tests in a real browser and of sdk/js
	@tests/e2e/browser/install.sh $(VENV)/browser

sdk: browser ## build the JavaScript package, test it in Node and pack it into build/
	cd sdk/js && npm test && mkdir -p ../../build && npm pack --pack-destination ../../build

dist: $(VENV)/dev.stamp ## build wheel and sdist into dist/, and try the wheel in an empty environment
	rm -rf dist
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build --outdir dist
	$(PYTHON) tools/try_wheel.py dist/*.whl

lint: $(VENV)/dev.stamp ## ruff, mypy --strict and the import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Never part of CI: it asks pypi.org, and what it finds changes without a change here. pip-audit has
# an environment of its own, so that it is not among what it audits; --strict, since it would call
# packages that it could not look up free of vulnerabilities.
AUDIT := .venv-audit

audit: $(VENV)/dev.stamp ## known vulnerabilities in the versions that are installed, if pypi.org can be reached
	@if $(BIN)/python -c 'import pip, urllib.request as u; u.urlopen(f"https://pypi.org/pypi/pip/{pip.__version__}/json", timeout=10)' 2>/dev/null; then \
	  set -e; \
	  test -x $(AUDIT)/bin/pip-audit || { $(PYTHON) -m venv $(AUDIT); $(AUDIT)/bin/python -m pip --quiet --disable-pip-version-check install 'pip-audit>=2.7,<3'; }; \
	  $(BIN)/python -m pip --disable-pip-version-check freeze --exclude-editable > $(AUDIT)/installed.txt; \
	  $(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip --requirement $(AUDIT)/installed.txt; \
	else \
	  echo "What pypi.org knows about single versions cannot be reached from here: nothing was audited."; \
	fi

COMPARE := .venv-compare
COMPARE_PIP := $(COMPARE)/bin/python -m pip --quiet --disable-pip-version-check

compare: $(COMPARE)/peers.stamp ## the same drifting tests, decided by other tools
	$(COMPARE)/bin/python -m benchmarks.bench_peers $(ARGS)

$(COMPARE)/bin/python:
	$(PYTHON) -m venv $(COMPARE)

$(COMPARE)/peers.stamp: pyproject.toml constraints.txt benchmarks/peers.txt benchmarks/peers-alone.txt | $(COMPARE)/bin/python
	$(COMPARE_PIP) install --constraint constraints.txt --editable . --requirement benchmarks/peers.txt
	$(COMPARE_PIP) install --no-deps --requirement benchmarks/peers-alone.txt
	@touch $@

clean: ## remove everything the other targets made
	rm -rf $(VENV) $(COMPARE) $(AUDIT) build dist sdk/js/node_modules sdk/js/dist sdk/js/build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache steadyarm-demo steadyarm-examples steadyarm-results
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "SteadyArm needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version`. Say which with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[service,openfeature]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/run.stamp
