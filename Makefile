# Commands for contributors. Needs python3 (3.11 or newer), make, and a package index that pip can reach.
#
# Each environment stage leaves a stamp in .venv and is repeated only when its pins or pyproject.toml change.
# `make demo` stops at the smallest stage, which installs only a few packages.

PYTHON = python3
VENV = .venv
BIN = $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
PIP = $(BIN)/python -m pip --quiet --disable-pip-version-check
# Python compiles a module at its first import. pip would compile all 5,700 of them, most of which are never used.
INSTALL = $(PIP) install --no-compile
ARGS =

# Processes for the tests: one more than there are cores, because tests of real processes mostly wait.
JOBS = $(shell expr $$(getconf _NPROCESSORS_ONLN || nproc) + 1)

# Tests write thousands of small databases. Where the system has a folder in memory, with 4 GB free, they go there.
MEMORY = $(shell test -w /dev/shm && test $$(df -Pk /dev/shm | awk 'END { print $$4 }') -gt 4000000 && echo /dev/shm)

# Tests start hundreds of Python processes, which compile redrive anew unless compiled files may be written.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL = help
.PHONY: help venv compiled demo test test-all newest oldest again dates soak chaos failover crossings check lint types layers docstrings pages docs docs-words screenshots bench bench-backlog bench-peers format pins openapi fixture wheel dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- environment -----------------------------------------------------------------------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "redrive needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/demo.stamp: requirements/demo.txt pyproject.toml | $(BIN)/python
	$(INSTALL) -r requirements/demo.txt
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/test.stamp: requirements/test.txt $(VENV)/demo.stamp
	$(INSTALL) -r requirements/test.txt
	@touch $@

$(VENV)/check.stamp: requirements/lint.txt requirements/docs.txt $(VENV)/test.stamp
	$(INSTALL) -r requirements/lint.txt -r requirements/docs.txt
	@touch $@

$(VENV)/bench.stamp: requirements/bench.txt $(VENV)/demo.stamp
	$(INSTALL) -r requirements/bench.txt
	@touch $@

venv: $(VENV)/check.stamp ## make .venv with redrive (editable) and all pinned tools

# Each process of the tests collects all of them, which takes 8 seconds with compiled files and 20 without. .ci/run makes
# these files while pip installs the tools. What cannot be collected is reported by the tests.
compiled: $(VENV)/test.stamp
	@$(BIN)/python -m pytest --collect-only -qq -p no:cacheprovider > /dev/null 2>&1 || true

# --- use -------------------------------------------------------------------------------------------------------------

demo: $(VENV)/demo.stamp ## run the demo: durable webhooks to an unreliable server; ARGS=--open shows it in a browser
	@$(BIN)/python -m redrive demo $(ARGS)

# STRESS=6 runs six loops beside the tests that keep the cores busy; they end with the shell that has started them.
BUSY = $(if $(STRESS),for each in $$(seq $(STRESS)); do \
	(while kill -0 $$$$; do for each in $$(seq 10000); do :; done; done) > /dev/null 2>&1 & done;)

# DATE="2028-02-29 00:59:30" shifts the clocks of all processes to that time, which is in the time zone TZ. Monotonic
# clocks are not shifted. Needs Debian's libfaketime, which breaks time.sleep (EINVAL) and PostgreSQL's time limits:
# a file of the environment replaces the one, and tests that are marked `realtime` are left out (tests/selection.py).
FAKETIME = $(wildcard /usr/lib/*/faketime/libfaketime.so.1)
SLEEP = import os, time; "FAKETIME" in os.environ and setattr(time, "sleep", lambda s: __import__("select").select((), (), (), s) and None)
SHIFT = $(if $(DATE),$(or $(FAKETIME),$(error DATE needs Debian's libfaketime)),)
SHIFTED = $(if $(SHIFT),$(file > $(wildcard $(VENV)/lib/python3*/site-packages)/faketime.pth,$(SLEEP))LD_PRELOAD=$(SHIFT) FAKETIME_DONT_FAKE_MONOTONIC=1 \
	FAKETIME=$$(expr $$(date --date='$(DATE)' +%s) - $$(date +%s) | sed 's/^[0-9]/+&/'))

# Each process starts a PostgreSQL server of its own.
PYTEST = $(BUSY) $(if $(MEMORY),TMPDIR=$(MEMORY)) $(SHIFTED) $(BIN)/python -m pytest --numprocesses=$(JOBS) --dist=worksteal

# With COVER=1 the status file carries pytest's exit code past the pipe, and the closing line is printed again at the end.
test: $(VENV)/test.stamp ## prove each promise; ARGS="-k backoff" narrows them, JOBS=0 uses one process, COVER=1 demands coverage
ifdef COVER
	@mkdir -p build && rm -f build/status .coverage .coverage.*
	@{ $(PYTEST) -p tests.measuring $(ARGS); echo $$? > build/status; } | tee build/test.log
	@failed=$$(cat build/status); \
	$(BIN)/python -m coverage combine --quiet && $(BIN)/python -m coverage report --fail-under=100 || failed=1; \
	tail -n 1 build/test.log; exit $$failed
else
	@$(PYTEST) $(ARGS)
endif

# tests/selection.py has the rules for what `make test` leaves out.
test-all: $(VENV)/test.stamp ## run all tests on all stores, in their long forms: for the night and before a release
	@REDRIVE_TESTS=all REDRIVE_CHAOS=long REDRIVE_CROSSINGS=long $(PYTEST) $(ARGS)

# Each makes an environment of its own. The lowest versions are those of pyproject.toml; what they need themselves, and the
# tools of the tests, are the newest that work with them.
newest oldest: $(BIN)/python ## run the tests with the newest, or the lowest allowed, versions of all dependencies
	@mkdir -p build && $(PIP) install uv
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python build/$@
	@$(BIN)/uv pip compile --quiet --no-deps --all-extras --no-header --no-annotate --python build/$@/$(notdir $(BIN))/python \
		--resolution $(if $(filter oldest,$@),lowest-direct,highest) --output-file build/$@.txt pyproject.toml
	@$(BIN)/uv pip install --quiet --python build/$@/$(notdir $(BIN))/python --constraint build/$@.txt --requirement requirements/test.in \
		--editable ".[all]"
	@cat build/$@.txt && $(subst $(BIN)/,build/$@/$(notdir $(BIN))/,$(PYTEST)) $(ARGS)

# A test that is marked `realtime` can fail because the machine is busy; a defect of the code fails again. pytest ends with
# status 8 if at most three tests failed, all of them with this mark (tests/conftest.py). Both results are printed.
again: ## run the tests that failed in `make test COVER=1` once more, alone, if all are marked `realtime`
	@[ "$$(cat build/status)" = 8 ]
	@echo "These tests have failed; they run once more, alone:" && grep -E '^(FAILED|ERROR) ' build/test.log
	@$(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/python -m pytest --last-failed --last-failed-no-failures=none \
		-p tests.measuring > build/again.log; failed=$$?; cat build/again.log; \
	$(BIN)/python -m coverage combine --quiet --append && $(BIN)/python -m coverage report --fail-under=100 || failed=1; \
	tail -n 1 build/again.log; exit $$failed

# Hours and days at which dates go wrong, in the folders that read dates.
dates: $(VENV)/test.stamp ## run the tests that read dates at 00:59 UTC, on 29 February, and in nights when clocks change
	@for each in $(DATES); do \
		$(MAKE) --no-print-directory test DATE="$${each%,*}" TZ="$${each#*,}" ARGS="$(DATED) $(ARGS)" || exit 1; \
	done

DATES = "2028-02-29 00:59:30,UTC" "2027-12-31 23:58:00,UTC" "2027-03-28 01:58:30,Europe/Berlin" \
	"2027-10-31 02:58:30,Europe/Berlin" "2027-11-07 01:58:30,America/New_York"
# Chromium hangs with the library.
DATED = tests/app tests/cli tests/policy tests/runtime tests/schedule tests/stores/conformance tests/testing tests/web \
	--ignore=tests/web/test_browser.py --ignore=tests/web/test_proxies.py

soak: $(VENV)/test.stamp ## walk the store's state machine for minutes, then simulate 100,000 fleets for hours
	@$(BIN)/python -m pytest tests/stores/test_state_machine.py --hypothesis-profile=deep $(ARGS)
	@REDRIVE_TESTS=all REDRIVE_SEEDS=100000 $(BIN)/python -m pytest tests/simulation -q $(ARGS)

chaos: $(VENV)/test.stamp ## run for an hour the chaos tests that `make test` runs for a minute
	@REDRIVE_CHAOS=long $(BIN)/python -m pytest tests/acceptance -m chaos $(ARGS)

# The tests of Patroni need Debian's patroni, etcd-server, haproxy and postgresql-15, and are skipped without them.
ROUNDS = 3
failover: $(VENV)/test.stamp ## let servers of PostgreSQL fail over under load, and print what was lost; ROUNDS=10
	@REDRIVE_ROUNDS=$(ROUNDS) $(if $(MEMORY),TMPDIR=$(MEMORY)) $(BIN)/python -m pytest tests/acceptance/test_failover.py $(ARGS)

crossings: $(VENV)/test.stamp ## cross three features of runs and deliveries at a time, for up to an hour
	@REDRIVE_CROSSINGS=long $(PYTEST) tests/crossings $(ARGS)

check: pages lint types layers docstrings ## documentation, lint, format, types, layers, docstrings; -k shows all failures

lint: $(VENV)/check.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(VENV)/check.stamp
	$(BIN)/mypy
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	@# Of 15,000 symbols of all modules 99 of 100 have a type that each type checker reads alike; the rest are Django's.
	@PATH="$(CURDIR)/$(BIN):$$PATH" basedpyright --verifytypes redrive --ignoreexternal --outputjson | $(BIN)/python -c \
		'import json, sys; s = json.load(sys.stdin)["typeCompleteness"]["completenessScore"]; print(f"{s:.1%} typed"); sys.exit(s < 0.99)'

layers: $(VENV)/check.stamp
	$(BIN)/lint-imports --no-cache

docstrings: $(VENV)/check.stamp
	$(BIN)/interrogate src
	$(BIN)/interrogate --whitelist-regex "^test_" tests

# Sphinx copies all tables of contents for the sidebar of each page; those with objects are for readers (`make docs`).
pages: $(VENV)/check.stamp
	$(BIN)/python -m sphinx -j 2 -q -E -W -n --keep-going -D toc_object_entries=0 -b html docs docs/_build/check

docs: $(VENV)/check.stamp ## build the documentation into docs/_build/html
	$(BIN)/python -m sphinx -W -n --keep-going -b html docs docs/_build/html

docs-words: ## count the words of the documentation, without code and what is looked up
	@$(PYTHON) docs/words.py

screenshots: $(VENV)/test.stamp ## make the pictures of the dashboard anew, into docs/screenshots; needs Chromium
	$(BIN)/python docs/screenshots.py $(ARGS)

bench: $(VENV)/bench.stamp ## measure redrive, its peers and the raw limit side by side
	@$(BIN)/python -m benchmarks $(ARGS)

bench-backlog: $(VENV)/bench.stamp ## measure due jobs in front of a million waiting ones, without vacuum
	@$(BIN)/python -m benchmarks.backlog $(ARGS)

# Each peer has an environment of its own, so that its pins do not limit the versions of the others.
PEERS = $(patsubst benchmarks/peers/%.txt,build/peers/%/stamp,$(wildcard benchmarks/peers/*.txt))

bench-peers: $(PEERS) ## make an environment for each peer that `make bench` measures

build/peers/%/stamp: benchmarks/peers/%.txt
	$(PYTHON) -m venv build/peers/$*
	build/peers/$*/bin/python -m pip --quiet --disable-pip-version-check install -r $<
	@touch $@

# --- upkeep ----------------------------------------------------------------------------------------------------------

format: $(VENV)/check.stamp ## format the code and repair what ruff can repair
	$(BIN)/ruff check --fix-only --quiet
	$(BIN)/ruff format

# One resolution for all files: a later stage may add packages, never move those of an earlier one.
pins: $(BIN)/python ## resolve requirements/*.in anew into requirements/*.txt
	$(PIP) install uv
	@# typer 0.29 imports pydantic, which costs each command a tenth of a second. Celery 5.7 needs this python-dateutil.
	@printf '%s\n' "typer<0.29" "python-dateutil==2.9.0.post0" > build.pins && cd requirements && for name in runtime build demo test docs lint bench; do \
		../$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --upgrade \
			--no-header --no-annotate --no-emit-index-url --no-emit-find-links \
			--constraint ../build.pins --output-file $$name.txt $$name.in || exit 1; \
		cat $$name.txt >> ../build.pins; \
	done; rm -f ../build.pins
	cd benchmarks/peers && for name in *.in; do \
		../../$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-header --no-annotate \
			--no-emit-index-url --no-emit-find-links --output-file $${name%.in}.txt $$name || exit 1; \
	done

openapi: $(VENV)/check.stamp ## write docs/reference/openapi.json anew, from the routes of the dashboard
	@$(BIN)/python docs/generate.py

# Sets of texts are stored in the order of their hashes.
fixture: $(VENV)/test.stamp ## make the kept database of this version anew, into tests/upgrades, after a change of the schema
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.upgrades.make && ls -l tests/upgrades/[0-9]*

wheel: $(VENV)/demo.stamp ## build the wheel into dist/
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

# Both are built twice: the same source gives the same bytes.
dist: $(BIN)/python ## build the sdist and the wheel of a release into dist/, and check them
	@rm -rf dist build/dist && $(PYTHON) -m venv build/dist && build/dist/bin/python -m pip install --quiet build twine
	@for each in dist build/dist/again; do build/dist/bin/python -m build --outdir $$each . >build/dist/log || { cat build/dist/log; exit 1; }; done
	@for each in dist/*; do cmp $$each build/dist/again/$${each#dist/} || exit 1; done
	build/dist/bin/twine check --strict dist/*

clean: ## remove what was built, except .venv
	rm -rf build dist docs/_build redrive-demo .coverage .coverage.*
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
