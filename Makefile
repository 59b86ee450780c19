# Daily verbs. `make help` lists them. Needs make, a POSIX shell and Python 3.11 or newer.
# Where pip looks for packages is left to your own pip settings.

PYTHON  ?= python3
# Processes that `make test` spreads over. Tests wait for servers half of their time: hence one more
# than there are cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(1 + (os.cpu_count() or 1))')
# Passed on to the program behind a verb: make demo ARGS="--for 30"
ARGS    ?=

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: setup demo test check bench torture test-all docs help

setup: $(STAMP)  ## make .venv with everything; .venv/bin/headway is then the command

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Headway needs Python 3.11 or newer; %s is %s. Say which to use: make setup PYTHON=python3.11" % (sys.executable, sys.version.split()[0]))'
	@$(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); \
		echo "No virtual environment could be made. Where the system packages venv on its own (Debian: python3-venv), install that." >&2; \
		exit 1; }

$(STAMP): requirements/dev.txt pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup  ## departures of a real day, a call centre, repairs and a mail room, live: ARGS="--for 30" ends by itself
	$(BIN)/python -m examples.demo $(ARGS)

test: setup  ## every test but the slow ones
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-all: setup  ## every test, the slow ones too
	$(PYTEST) -n $(WORKERS) --dist worksteal $(ARGS)

check: setup  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/lint-imports

bench: setup  ## what the engine does in a second, beside the limits of this machine
	$(BIN)/python -m bench $(ARGS)

torture: setup  ## the long rig of kills and races
	$(BIN)/python -m tests.torture $(ARGS)

docs: setup  ## run the code blocks of the docs and follow their links
	$(PYTEST) tests/docs $(ARGS)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-12s%s\n", $$1, $$2 }'
