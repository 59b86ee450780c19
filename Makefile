# Daily verbs. `make help` lists them. Needs make, a POSIX shell and Python 3.11 or newer.
# Where pip looks for packages is left to your own pip settings.

PYTHON  ?= python3
# Number of processes for `make test`. Tests spend half of their time waiting for servers, so there
# are two more than cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 + (os.cpu_count() or 1))')
# Passed to the program behind a target: make demo ARGS="--for 30"
ARGS    ?=

# The tests start hundreds of interpreters; without cached bytecode each would compile all of Headway.
unexport PYTHONDONTWRITEBYTECODE

VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DEMO   := $(VENV)/.installed-demo
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: setup demo test test-slow test-all test-deep test-loaded check bench torture docs brokers brokers-stop lua help

setup: $(STAMP)  ## create .venv with all dependencies and the command .venv/bin/headway

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Headway needs Python 3.11 or newer; %s is %s. Choose one: make setup PYTHON=python3.11" % (sys.executable, sys.version.split()[0]))'
	@$(PYTHON) -m venv $(VENV) || { \
		rm -rf $(VENV); \
		echo "The virtual environment could not be created. If your system packages venv separately (Debian: python3-venv), install it." >&2; \
		exit 1; }

# Not quiet: a first install takes minutes.
$(STAMP): requirements/dev.txt pyproject.toml | $(BIN)/python
	$(call install,$<)

# A subset of what setup installs, at the same versions, so that either can run first.
$(DEMO): requirements/demo.txt pyproject.toml | $(BIN)/python
	$(call install,$<)

define install
	@echo "Installing $$(grep -c '==' $(1)) packages into $(VENV)"
	$(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r $(1)
	$(BIN)/python -m pip install --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
endef

demo: $(DEMO)  ## run five systems live on one SQLite file, then check the outcome; ARGS="--for 30" stops it
	$(BIN)/python -m examples.demo $(ARGS)

test: setup  ## all tests except the slow ones
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow" $(ARGS)

test-slow: setup  ## the slow tests
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "slow and not deep" $(ARGS)

test-all: setup  ## all tests in one run
	$(PYTEST) -n $(WORKERS) --dist worksteal $(ARGS)

test-deep: setup  ## the tests that test-slow omits, and the random ones with eight times as many histories
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "deep" $(ARGS)
	HEADWAY_TEST_DEPTH=8 $(PYTEST) -n $(WORKERS) --dist worksteal -m "slow and not deep" \
		tests/machine tests/oracle tests/core $(ARGS)

# Each loop ends when the shell that started it has exited, for whatever reason.
test-loaded: setup  ## `make test` with four busy processes in the background
	@for loop in 1 2 3 4; do while kill -0 $$$$ 2>/dev/null; do :; done & loops="$$loops $$!"; done; \
	trap 'kill $$loops' EXIT; trap 'exit 129' HUP; trap 'exit 130' INT; trap 'exit 143' TERM; \
	$(MAKE) test

check: setup  ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/basedpyright
	$(BIN)/basedpyright -p tests
	$(BIN)/lint-imports

bench: setup  ## measure the engine and the limits of this machine
	$(BIN)/python -m bench $(ARGS)

torture: setup  ## long-running tests with kills and races
	$(BIN)/python -m tests.torture $(ARGS)

lua: setup  ## regenerate the Lua rules from their Python source
	$(BIN)/python -m tools.lua

docs: setup  ## run the code blocks of the docs and check their links
	$(PYTEST) tests/docs $(ARGS)

brokers: setup  ## start Apache Kafka and Cassandra for the tests; needs Java 17 and Maven
	@$(BIN)/python -m tests.servers.brokers start

brokers-stop: setup  ## stop the servers that `make brokers` started
	@$(BIN)/python -m tests.servers.brokers stop

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*  ## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-16s%s\n", $$1, $$2 }'
