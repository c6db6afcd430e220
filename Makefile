# Everything from a fresh clone: `make demo` and `make test` do all set-up themselves.

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
# Hundreds of processes of the tests import the package: compiled once, each starts sooner.
unexport PYTHONDONTWRITEBYTECODE

IN_TWO := -n 2 --dist loadgroup --randomly-seed 1
IN_THREE := -n 3 --dist loadgroup --randomly-seed 1

# The tests flush thousands of small files and make hundreds of databases, for which a disk is waited
# for most of the time: in memory where 6 GiB are free there, of which a run takes less than one.
ifneq ($(shell df -k --output=avail /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 > 6 * 1024 * 1024'),)
export PYTEST_DEBUG_TEMPROOT := /dev/shm
endif

.PHONY: setup programs demo test test-full test-rest test-live test-long test-pair fuzz lint check format bench soak clauses docs site lock clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt scripts/setup scripts/duckdb-delta.txt
	@sh scripts/setup $(VENV)
	@touch $(READY)

# What some tests of test-full need beside: a browser, promtool and Azurite.
programs: setup
	@sh scripts/test-programs $(VENV)

demo: setup
	@$(VENV)/bin/mirrorlake demo $(ARGS)

# Minutes: every clause once, on real PostgreSQL, Spark and Delta. Three processes keep two cores
# busy, because tests wait for servers a third of the time. Order and examples are the same in each
# run; test-long draws new ones.
test: setup
	@MIRRORLAKE_TESTS=quick $(PYTHON) -m pytest $(IN_THREE) -m "not long and not full" --clauses build/clauses.json $(ARGS)

# An hour: all tests but those of the long run, with more examples of each property.
test-full: test test-rest

# What make test does not have, or has with fewer examples.
test-rest: programs
	@MIRRORLAKE_TESTS=rest $(PYTHON) -m pytest $(IN_TWO) -m "not long" $(ARGS)

# The part of test-rest that uses live databases and kills processes, without Spark. .ci/run runs it
# after make test: together they take less than an hour on a machine that is half as fast.
LIVE := tests/app tests/capture tests/crash tests/sources
test-live: programs
	@MIRRORLAKE_TESTS=rest $(PYTHON) -m pytest $(IN_TWO) -m "not long and not spark" $(LIVE) $(ARGS)

# Hours: many more examples, more versions of PostgreSQL, long crash series.
test-long: programs
	@MIRRORLAKE_TESTS=long $(PYTHON) -m pytest -n 2 --dist loadgroup --timeout 7200 $(ARGS)

# Three quarters of an hour: the tests of Spark on the older of the tested pairs of Spark and Delta,
# and the quick tests of what uses the other libraries, all on the lowest versions that
# pyproject.toml allows, in a virtual environment of its own. ARGS=tests/spark/test_apply.py for less.
test-pair: setup
	@sh scripts/test-pair $(VENV) $(VENV)-pair $(ARGS)

# Minutes: damaged input of every kind, new each time. What is found is kept as an example.
fuzz: setup
	@MIRRORLAKE_TESTS=fuzz $(PYTHON) -m pytest -n 2 -m fuzz --timeout 3600 $(ARGS)

# Without running anything: format, lint, types, layers.
lint: setup
	@$(VENV)/bin/ruff format --check src tests bench
	@$(VENV)/bin/ruff check src tests bench
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-logo

# Seconds: the same, and the tests that need no server and no JVM.
check: lint
	@MIRRORLAKE_TESTS=quick $(PYTHON) -m pytest -q -m "not postgres and not spark and not crash and not long and not full"

format: setup
	@$(VENV)/bin/ruff format src tests bench
	@$(VENV)/bin/ruff check --fix src tests bench

# Side by side with peers, which have a virtual environment of their own; NAME=load runs one.
bench: setup
	@sh scripts/setup-bench $(VENV) $(VENV)-bench
	@$(VENV)-bench/bin/python -m bench $(if $(NAME),--only $(NAME)) $(ARGS)

# An hour of small batches: is the end as fast as the beginning? Then an hour of batches, maintenance,
# vacuum and readers of one table at once. SECONDS=600 for less of each.
soak: setup
	@$(PYTHON) -m bench.soak --seconds $(or $(SECONDS),3600) $(ARGS)
	@MIRRORLAKE_SOAK_SECONDS=$(or $(SECONDS),3600) $(PYTHON) -m pytest -q tests/spark/maintenance/test_at_once.py

# Which clauses of docs/spec are proved, which only describe, which are open: the report of a run.
clauses: test

# The generated parts of the documentation, from the code.
docs: setup
	@$(PYTHON) -m tests.docs.generate

# The documentation as a site in build/site; a warning is an error.
site: setup
	@sh scripts/setup-site $(VENV) $(VENV)-site
	@NO_MKDOCS_2_WARNING=1 $(VENV)-site/bin/mkdocs build -q

# Pin what pyproject.toml asks for, with hashes and without addresses: for development, for an
# installation, for `make test-pair` (the lowest versions that it allows, with the older pair), for the
# bench.
RUNTIME := postgresql spark sql excel objects azure server
PIN := $(VENV)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
lock: setup
	@$(PYTHON) -m pip install -q uv
	@mkdir -p build
	@$(PIN) pyproject.toml --extra dev -o constraints.txt
	@$(PIN) pyproject.toml $(addprefix --extra ,$(RUNTIME)) -c constraints.txt -o constraints-runtime.txt
	@printf 'pyspark==4.1.1\n' >build/older.txt
	@$(PIN) pyproject.toml $(addprefix --extra ,$(RUNTIME) demo) --override build/older.txt \
		--no-deps --resolution lowest-direct -o build/lowest.txt
	@$(PIN) pyproject.toml --extra dev --override build/older.txt -c build/lowest.txt -o constraints-pair.txt
	@# dlt, a peer, reads databases by an older SQLAlchemy than ours.
	@sed '/^sqlalchemy==/,/^[^ ]/{/^sqlalchemy==/d;/^ /d}' constraints.txt >build/shared.txt
	@$(PIN) bench/requirements.in -c build/shared.txt -o bench/constraints.txt
	@$(PIN) scripts/site-requirements.in -o scripts/site-constraints.txt
	@$(PIN) scripts/duckdb-delta.in -o scripts/duckdb-delta.txt

clean:
	rm -rf $(VENV) $(VENV)-bench $(VENV)-site $(VENV)-pair build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
