# `make demo` and `make test` start from a fresh clone; everything they install goes into $(VENV).
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
LOCK := .ci/lock.txt
DOCS_LOCK := .ci/lock-docs.txt
BIN := $(VENV)/bin
SOURCES := $(shell find csrc -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')
PY_DIRS := python calirare_ext tests benchmarks docs/examples docs/site setup.py
.DEFAULT_GOAL := setup

.PHONY: setup demo check test fast-tests all-tests release-tests test-oldest test-engines test-portable fuzz sanitize kill lint format docs options wheel bench gpu clean

# Dependencies: again only when the lock or the project's own list changes. Nothing is taken whose checksum is not in the
# lock; that it holds all that the project needs is looked at without an index. Bytecode is made afterwards, on every
# core, and of whatever there is: some packages hold files for other versions of Python.
$(VENV)/.dependencies: pyproject.toml $(LOCK)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile --no-deps --require-hashes -r $(LOCK)
	$(BIN)/python -m pip install -q --no-compile $(TORCH)
	$(BIN)/python .ci/requirements.py | $(BIN)/python -m pip install -q --no-index -r /dev/stdin
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	touch $@

# The extension: again only when a source changes.
$(VENV)/.built: $(VENV)/.dependencies setup.py CMakeLists.txt calirare_ext/_version.py $(wildcard python/*/pyproject.toml) $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip install -q --no-build-isolation --no-deps -e .
	$(BIN)/python -m pip install -q --no-build-isolation --no-deps -e python/calirare_multilabel -e python/calirare_lab
	touch $@

setup: $(VENV)/.built

demo: setup
	$(BIN)/calirare train --dataset digits --out runs/demo --overwrite

# One worker per core, one thread each. Worksteal: neighbours share what they trained, and no core waits for a long file.
# Bytecode is kept, whatever the machine says: rewriting every assertion anew takes each worker ten seconds. Threads that
# wait sleep: the few tests of two threads would else keep both cores.
# Nothing of make's own jobs is handed on: a build inside of a test would look for them.
PYTEST := MAKEFLAGS= MFLAGS= PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive $(BIN)/python -m pytest \
	-q -n auto --dist worksteal

# While working: style, types and what is fast; at most 90 seconds on two cores. The linters run beside the tests: the
# types are read by one process, and tests do not always keep every core.
check: setup
	$(MAKE) --no-print-directory -j2 lint fast-tests

test: setup
	$(MAKE) --no-print-directory -j2 lint all-tests

fast-tests: setup
	$(PYTEST) -m "not slow and not release"

all-tests: setup
	$(PYTEST) -m "not release"

# What `make test` leaves out and `.ci/run` does: builds, warnings of compilers, fresh processes, the guide to the letter.
release-tests: setup
	$(PYTEST) -m release

# Scores of a local Spark, which needs Java; pyspark goes into a folder of its own.
test-engines: setup
	$(BIN)/python -m pip install -q --target build/spark "pyspark>=4"
	PYTHONPATH=build/spark $(PYTEST) -n 0 -m spark tests/calirare/engines

# The fast tests with the oldest versions of the packages that are accepted, .ci/oldest.txt, which warn more.
OLDEST := build/oldest/bin/python
test-oldest: setup
	$(PYTHON) -m venv build/oldest
	$(OLDEST) -m pip install -q $(TORCH) -r .ci/oldest.txt
	$(OLDEST) -m pip install -q --no-build-isolation --no-deps -e python/calirare_multilabel -e python/calirare_lab
	PYTHONPATH=python:. OMP_NUM_THREADS=1 $(OLDEST) -m pytest -q -n auto -W default -m "not slow and not release" --ignore tests/test_packaging.py

# The whole suite as other processors run it: instruction sets of torch, MKL, OpenBLAS and numpy, one and two threads, in
# random order. PORTABLE="default tests/ext" runs one of them on some folders; see .ci/portable.
PORTABLE ?= all
test-portable: setup
	PYTEST="$(PYTEST) -m 'not release'" .ci/portable $(PORTABLE)

# Damaged and hostile files, settings and matrices; another SEED gives other cases. The tests run a short turn of it.
MINUTES ?= 10
SEED ?= 0
fuzz: setup
	OMP_NUM_THREADS=1 PYTHONPATH=. $(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED)

# The operators' tests and fuzz targets under sanitizers, in build folders of their own (ten minutes to compile each);
# SANITIZERS=thread looks for races instead.
SANITIZERS ?= address,undefined
sanitize: setup
	.ci/sanitize $(SANITIZERS) $(MINUTES)

# Commands killed at random moments, starved of files and disk, run twice, run for long: writes the numbers that
# benchmarks/results/reliability.json holds; see CONTRIBUTING.md.
kill: setup
	OMP_NUM_THREADS=1 PYTHONPATH=. $(BIN)/python -m tests.campaigns --minutes $(MINUTES) --seed $(SEED)

# The options of `calirare train`, from the fields of the settings; a test says when it is due.
options: setup
	$(BIN)/python -m calirare_lab.options

lint: setup
	$(BIN)/ruff format --check $(PY_DIRS)
	$(BIN)/ruff check $(PY_DIRS)
	$(BIN)/clang-format --dry-run --Werror $(SOURCES)
	$(BIN)/mypy -p calirare -p calirare_ext -p calirare_multilabel -p calirare_lab

format: setup
	$(BIN)/ruff format $(PY_DIRS)
	$(BIN)/ruff check --fix $(PY_DIRS)
	$(BIN)/clang-format -i $(SOURCES)

# The pages, in build/docs/html: no warning, every example run, every link followed; nothing is fetched but the tools.
$(VENV)/.docs: $(VENV)/.dependencies $(DOCS_LOCK)
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r $(DOCS_LOCK)
	$(BIN)/python .ci/requirements.py docs | $(BIN)/python -m pip install -q --no-index -r /dev/stdin
	touch $@

docs: setup $(VENV)/.docs
	MPLBACKEND=Agg $(BIN)/python -m sphinx -q -E -a -W --keep-going -c docs/site docs build/docs/html
	$(BIN)/python docs/site/check_links.py build/docs/html

# A CPU wheel for this Python and torch, and a source archive, in dist/; the wheel is tried in a fresh environment.
$(VENV)/.wheel: $(VENV)/.dependencies .ci/lock-wheel.txt
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r .ci/lock-wheel.txt
	touch $@

wheel: setup $(VENV)/.wheel
	.ci/wheel $(BIN)/python $(TORCH)

# Every CPU benchmark at quick settings, at most 15 minutes; writes benchmarks/results.
bench: setup
	$(BIN)/python benchmarks/run.py

# On a machine with a GPU, without network: uses the torch that is there, not $(VENV).
gpu:
	benchmarks/gpu.sh

clean:
	rm -rf build dist docs/api docs/gallery $(VENV)/.built calirare_ext/_C*.so
