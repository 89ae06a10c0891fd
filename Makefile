# Every target makes .venv, installs what it needs and is quick when nothing changed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: demo test browser lint format bench clean help
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

demo: $(VENV)/run.stamp ## find the best of 16 page layouts in a drifting world
	$(BIN)/steadyarm demo

test: $(VENV)/dev.stamp browser ## run every test and doctest
	$(BIN)/python -m pytest
	@echo "Screenshots of the dashboard are in steadyarm-screenshots/."

browser: | $(VENV)/bin/python ## chromium and axe-core, for tests in a real browser
	@tests/browser/install.sh $(VENV)/browser

lint: $(VENV)/dev.stamp ## ruff, mypy --strict and the import order
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev.stamp ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/dev.stamp ## measure speed, as ratios within one run
	for script in benchmarks/how_*.py; do $(BIN)/python -m benchmarks.$$(basename $$script .py) || exit 1; done

clean: ## remove everything the other targets made
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache steadyarm-demo steadyarm-results steadyarm-screenshots
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "SteadyArm needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version`. Say which with: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[plots,service]'
	@touch $@

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/run.stamp
