# Everything runs inside .venv, which the first target that needs it creates.
#   make test ARGS='tests/unit -k cron'     PYTHON=/opt/python3.12/bin/python3 make setup

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Where this is set, each of the hundreds of processes that the tests start would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
LOWEST := .venv-lowest
WHEELS := .venv-wheels
BIN := $(VENV)/bin
PYTHON ?=
CANDIDATES := $(if $(PYTHON),$(PYTHON),python3.13 python3.12 python3.11 python3)
SUITABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
ARGS ?=
# What touches every import, and each kind of statement of both drivers.
LOWEST_KITS := TestAccess TestTracking TestTaskRunner
LOWEST_TESTS := tests/unit tests/kit tests/packaging tests/migration_tool/cli $(LOWEST_KITS:%=tests/drivers/postgres/test_contract.py::TestPostgres::%) \
	$(LOWEST_KITS:%=tests/drivers/mongo/test_contract.py::TestMongo::%) \
	--deselect tests/packaging/test_wheel_commands.py::test_no_flag_of_the_wheel_shows_a_value_with_the_newest_typer
# Files stay together on one worker, so a module keeps its servers warm. -n 0 runs in this process. In order of
# names the many short files of tests/unit come last, which lets all workers end at the same time.
# One more than the two cores of a small machine: in a third of its time a test waits for a lease, a process or
# a server that starts.
WORKERS ?= 3
# Without the notice of the theme that MkDocs 2 will not run it. With --quiet MkDocs counts no warnings.
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
DISTRIBUTED := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
PYTEST := python -m pytest $(DISTRIBUTED)
# A whole run that ends writes the file for verification-report. The name of its suite is its level and commit.
# With ARGS a run is about a part, and leaves the file alone.
JUNIT := verification-report.xml
COMMIT = $(shell git describe --always --exclude='*' --abbrev=12 --dirty 2>/dev/null || echo unknown)
WHOLE = --junitxml=$(JUNIT) -o junit_suite_name='$@ $(COMMIT)' || { code=$$?; ((code == 1)) || rm -f $(JUNIT); exit $$code; }

.PHONY: help setup demo check fix test test-changed test-long lowest statements verification-report kit-faults soak differential native native-sanitized wheels bench bench-modules bench-aio docs clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 21

setup: $(VENV)/.installed ## create .venv and install twinstore with every extra
	@# By their content and not by their times, which a checkout of another commit may leave as they are.
	@$(BIN)/python hatch_build.py --stale

demo: setup ## move a live service's data from MongoDB to PostgreSQL, with proof
	$(BIN)/twinstore demo $(ARGS)

check: setup ## lint, format, types, import contracts, private names, layers, words, generated files, documentation site
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	@# At the same time: each of the two has one core busy for longer than all the others take.
	$(BIN)/pyright & running=$$!; failed=0; $(BIN)/mypy || failed=1; wait $$running || failed=1; exit $$failed
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.support.private_names
	$(BIN)/python -m tests.support.layers
	$(BIN)/python -m tests.support.words
	$(BIN)/python -m twinstore.codegen.aio --check
	$(BIN)/python -m docs.generate --check
	$(SITE)
	$(BIN)/twinstore dev migration scheduler --check
	$(BIN)/twinstore dev migration tracking --check
	$(BIN)/twinstore dev migration taskrunner --check
	$(BIN)/twinstore dev migration twinstore --check

fix: setup ## repair what ruff can repair, and write again every file that is made from the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python -m twinstore.codegen.aio
	$(BIN)/python -m tests.unit.fast.programs
	$(BIN)/python -m docs.generate

test: setup ## run the tests against real servers (ARGS='tests/unit -k cron')
	$(BIN)/$(PYTEST) $(or $(ARGS),--note-passed $(WHOLE))

test-changed: setup ## the test files that execute what has changed since BASE
	$(BIN)/python -m tests.support.changed $(DISTRIBUTED) $(ARGS)

test-long: setup ## the same, with the full form of every test that has a bounded one
	$(if $(ARGS),,@[ -n "$${TWINSTORE_TEST_PODMAN-podman}" ] && .ci/install runc podman || true)
	$(BIN)/$(PYTEST) --long $(or $(ARGS),--write-map .twinstore/tests-map.json $(WHOLE))

statements: setup ## record again what the drivers send in a run of the contract kit
	$(BIN)/$(PYTEST) --long --write-statements tests/drivers/postgres/test_contract.py tests/drivers/mongo/test_contract.py $(ARGS)

lowest: $(LOWEST)/.installed ## unit tests and a part of the kit on the lowest versions that pyproject.toml allows (ARGS=tests for all)
	$(LOWEST)/bin/$(PYTEST) $(or $(ARGS),$(LOWEST_TESTS))

verification-report: setup ## render the last whole run of test or test-long by group and driver (ARGS='--only postgres')
	$(BIN)/python -m tests.support.verification_report $(ARGS)

soak: setup ## faults of every kind at random on both databases, and a judge of what they left (ARGS='--minutes 10 --seed 7')
	$(BIN)/python -m tools.soak $(ARGS)

differential: setup ## the same calls at random on every driver, which must answer the same (ARGS='--only locks --examples 500')
	$(BIN)/python -m tools.differential $(ARGS)

kit-faults: setup ## plant faults into the sample driver, one at a time; the contract kit must find each (ARGS='--only pages')
	$(BIN)/python -m tests.kit.faults $(ARGS)

native: $(VENV)/.installed ## compile the library of the fast path, with every warning an error (CC=clang)
	$(BIN)/python hatch_build.py

native-sanitized: setup ## compile it with the sanitizers for addresses and undefined behaviour, and run its tests under them
	$(BIN)/python -m tests.support.sanitized $(ARGS)

wheels: $(WHEELS)/.installed ## build the wheels of a release into dist/: manylinux_2_28 for x86_64 and aarch64
	$(WHEELS)/bin/python release_wheels.py $(ARGS)

bench: setup ## measure copy, verify and single operations against the bare drivers
	$(BIN)/python -m benchmarks $(ARGS)

bench-modules: setup ## load whole modules through their services, copy and verify them (ARGS='--count 10000')
	$(BIN)/python -m benchmarks.modules $(ARGS)

bench-aio: setup ## measure asyncio: the facade beside a native path and plain threads (ARGS='--at-once 16')
	$(BIN)/python -m benchmarks.awaited $(ARGS)

docs: setup ## regenerate parts of docs/ and every schema.txt, and build the site into site/
	$(BIN)/python -m docs.generate $(ARGS)
	$(SITE)

clean: ## stop what runs here; remove .venv, every cache and what commands leave here
	if [ -d .twinstore ] && [ -x $(BIN)/twinstore ]; then $(BIN)/twinstore down; fi
	rm -rf core/twinstore/fast/libtwinstore.*
	rm -rf $(VENV) $(LOWEST) $(WHEELS) .twinstore backfill report site verification-report.* dist .demo .bench .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage*

$(BIN)/python:
	@for python in $(CANDIDATES); do \
	  if "$$python" -c '$(SUITABLE)' 2>/dev/null; then \
	    echo "creating $(VENV) with $$("$$python" --version)"; exec "$$python" -m venv $(VENV); \
	  fi; \
	done; \
	echo "No suitable Python among: $(CANDIDATES)." >&2; \
	echo "twinstore needs Python 3.11 or newer with the venv module. On Debian and Ubuntu:" >&2; \
	echo "  sudo apt-get install python3 python3-venv" >&2; \
	echo "or name another interpreter: make PYTHON=/path/to/python3 setup" >&2; \
	exit 1

# One line for each package that comes, because this takes minutes; of those that are there already, none.
SHORTLY := sed -unE 's/^Installing collected.*/  Installing all of them, which takes a minute/p; \
	/\.metadata/!s/^ *(Downloading|Using cached|Building) ([^ ]*\/)?/  \1 /p'

$(VENV)/.installed: pyproject.toml hatch_version.py | $(BIN)/python
	@echo "Installing what pyproject.toml names into $(VENV): some minutes the first time, for 800 MB with both servers"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --editable '.[dev]' | $(SHORTLY)
# The release of Typer that a user gets, for the tests of the wheel: the generator of clients allows an older one only.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(VENV)/newest typer
	@touch $@

# Not with the pip of Python 3.11, which knows no dependency groups.
$(WHEELS)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv --clear $(WHEELS)
	$(WHEELS)/bin/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	$(WHEELS)/bin/python -m pip install --quiet --disable-pip-version-check --group wheels
	@touch $@

# Not with pip: it knows no lowest versions.
$(LOWEST)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[dev]'
	@touch $@
