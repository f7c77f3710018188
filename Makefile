# make demo, make test: everything from a fresh machine with Python 3.11+ and make. See README.md.
PYTHON ?= python3
PIP_ARGS ?= -c constraints.txt
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo test test-browser test-slow lint docs format package clean

demo: .venv/.demo
	$(BIN)/knnmt demo

test: lint docs
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-browser: .venv/.installed
	$(BIN)/pytest tests/browser

test-slow: .venv/.installed
	$(BIN)/pytest -m slow --timeout 3600

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# any link or anchor that leads nowhere is an error; the site is in build/site
docs: .venv/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

package: .venv/.installed
	$(BIN)/python -m build

clean:
	rm -rf .venv dist build

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "knnmt needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "this Python lacks the venv module: install it (Debian: apt install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv .venv

# torch first and by its pin, so that PIP_ARGS chooses its build and nothing replaces it afterwards
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_ARGS) torch
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_ARGS) -e '.[dev]'
	touch $@

.venv/.demo: demo-requirements.txt .venv/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps $(PIP_ARGS) -r demo-requirements.txt
	touch $@
