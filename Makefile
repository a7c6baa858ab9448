# `make demo` and `make test` each stand alone: they make their virtual environment, install, and run.
# Needed: Python 3.11 or newer with venv, and a C++ compiler, by which TVM links its kernels.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
OUT ?= out
BIN := $(VENV)/bin

.PHONY: demo test lint clean

demo: $(VENV)/.demo
	$(BIN)/bridge demo --out $(OUT)

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) $(TESTS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python

$(VENV)/.%: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --editable ".[$*]"
	touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is older than 3.11: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@command -v $${CXX:-c++} >/dev/null || { echo "there is no C++ compiler: apt install g++"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "there is no venv: apt install python3-venv"; exit 1; }

clean:
	rm -rf $(VENV) $(OUT) build dist *.egg-info
