# Everything this project does, by name. `make help` lists it.
#
# Each command makes what it needs: the environment in .venv, what the pages
# need of others in _vendor, the pages in _build. Nothing is installed
# again until requirements.txt or pyproject.toml change.

PYTHON ?= python3
PY := .venv/bin/python

READER := .venv/reader.stamp
DEV := .venv/dev.stamp
VENDOR := _vendor/mathjax/LICENSE _vendor/pyodide/pyodide.asm.wasm
SOURCES := _build/computed.stamp _build/looks.stamp _build/wheel.stamp
AXE := _build/axe-core/axe.min.js
LITE := _build/lite.stamp

# Cached outputs depend on the notebook's own text only, so a change of the
# simulator must throw them away: these are the files that chapters compute with.
COMPUTED_FROM := requirements.txt $(shell find code -name '*.py' 2>/dev/null) $(wildcard chapters/data/*)
# And Sphinx copies a changed style sheet only when it writes some page anew.
LOOKS := $(shell find _static -type f 2>/dev/null)

INSTALL := install --quiet --disable-pip-version-check
LOCKED := .venv/bin/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-emit-package servesim --no-header --annotation-style line

BUILD := .venv/bin/jupyter-book build -q -W -n --keep-going
PYTEST := $(PY) -m pytest -q -n 2 --dist loadfile
PAGES := $(PY) -m pytest -q -n 2 tests/test_browser.py tests/test_lite_text.py tests/test_licenses.py \
	--site _build/html
NBVAL := $(PYTEST) --nbval --nbval-current-env --nbval-cell-timeout 60

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help book site test lint unit coverage nbval strict test-long pages pdf golden bench mutation format lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' Makefile

book: site  ## build the book and open it in the browser
	@$(PY) tools/serve.py _build/html

site: $(READER) $(VENDOR) $(SOURCES)  ## build the book into _build/html
# A build that failed forgets its pages: the next one would not warn about them again.
	@echo "Building the book (a minute the first time, seconds after that)"
	@$(BUILD) . || { rm -rf _build/.doctrees; exit 1; }
	@$(MAKE) --no-print-directory $(LITE)
	@$(PY) tools/sizes.py _build/html

test: lint $(DEV) $(VENDOR) $(SOURCES)  ## everything that must hold, quickly
# The pages are built by one process, which finds time beside the tests of the code.
	@mkdir -p _build
	@$(MAKE) --no-print-directory strict $(LITE) >_build/strict.log 2>&1 & pages=$$!; \
	$(MAKE) --no-print-directory unit nbval; tests=$$?; \
	wait $$pages; built=$$?; tail -n 40 _build/strict.log; exit $$((tests + built))
	@$(MAKE) --no-print-directory pages

lint: $(DEV)  ## style, types, spelling
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/codespell

unit: $(DEV)  ## the tests of the code
	$(PYTEST) tests

coverage: $(DEV)  ## which lines and branches the tests of the code reach (at least 95 %)
	$(PYTEST) --cov=servesim tests

nbval: $(DEV)  ## run every cell and compare with tests/golden
	$(NBVAL) chapters

strict: $(DEV) $(VENDOR) $(SOURCES)  ## build every page anew; a warning is an error
	$(BUILD) --all .

test-long: $(DEV) $(AXE) $(LITE)  ## many more examples, notebooks twice, pages thoroughly (half an hour)
	$(PYTEST) --long tests
	$(PAGES) --long

pages: $(DEV) $(AXE) $(LITE)  ## test the built pages in a browser, where there is one
	$(PAGES)

pdf: $(READER) _build/computed.stamp  ## print the book into _build/pdf (LaTeX; it says what to install)
	@$(PY) tools/pdf.py

golden: $(DEV)  ## write the chapters' outputs anew into tests/golden
	$(PY) tools/golden.py

bench: $(DEV)  ## measure speed and memory (some minutes; on a quiet machine)
	$(PY) -m tools.bench

mutation: $(DEV)  ## break the core in thousands of places: do the tests notice? (an hour)
	$(PY) -m tools.mutation $(MODULES)

format: $(DEV)  ## let ruff mend what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

lock: $(DEV)  ## choose the versions in the .lock files anew
	$(LOCKED) requirements.txt -o requirements.lock
	$(LOCKED) requirements.txt pyproject.toml --extra dev -c requirements.lock -o tools/dev.lock
	$(LOCKED) pyproject.toml --extra lite -o tools/lite.lock

clean:  ## delete what was built (the environment in .venv stays)
	rm -rf _build _vendor .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov

# From the locks: every file that is installed has a known hash. The simulator comes after
# them, and brings nothing in.
$(READER): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name one: make PYTHON=python3.12 ...")'
	@test -x $(PY) || $(PYTHON) -m venv .venv
	@echo "Installing the book's needs into .venv (about a minute, once)"
	@$(PY) -m pip $(INSTALL) -r requirements.lock
	@$(PY) -m pip $(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): $(READER) tools/dev.lock
	@echo "Installing the developer's tools into .venv"
	@$(PY) -m pip $(INSTALL) -r tools/dev.lock
	@touch $@

$(VENDOR): _vendor/%: $(READER) tools/vendor.py
	@$(PY) tools/vendor.py $(firstword $(subst /, ,$*)) _vendor/$(firstword $(subst /, ,$*))
	@touch $@

$(AXE): $(READER) tools/vendor.py
	@$(PY) tools/vendor.py axe-core $(@D)
	@touch $@

# The pages' Python brings the simulator as it is in this tree, and no other.
_build/wheel.stamp: _vendor/pyodide/pyodide.asm.wasm tools/own_wheel.py pyproject.toml $(COMPUTED_FROM)
	@$(PY) tools/own_wheel.py _vendor/pyodide
# Sphinx copies it only when it writes a page, and would leave the old wheel beside it.
	@test ! -d _build/html || { rm -rf _build/html/pyodide; cp -R _vendor/pyodide _build/html; }
	@mkdir -p _build
	@touch $@

_build/computed.stamp: $(COMPUTED_FROM)
	@rm -rf _build/.jupyter_cache _build/.doctrees _build/pdf/cache _build/pdf/doctrees
	@mkdir -p _build
	@touch $@

_build/looks.stamp: $(LOOKS)
	@rm -rf _build/.doctrees
	@mkdir -p _build
	@touch $@

# JupyterLite has an environment of its own: it must not find jupytext.
.venv/lite.stamp: $(READER) tools/lite.lock
	@test -x .venv/lite/bin/python || $(PYTHON) -m venv .venv/lite
	@echo "Installing JupyterLite into .venv/lite"
	@.venv/lite/bin/python -m pip $(INSTALL) -r tools/lite.lock
	@touch $@

$(LITE): .venv/lite.stamp tools/lite.py tools/lite_text.py tools/licenses.py _build/wheel.stamp $(shell find chapters assignments -type f)
	@$(PY) tools/lite.py .venv/lite/bin/jupyter _vendor/pyodide _build/html
	@$(PY) tools/licenses.py _build/html
	@touch $@
