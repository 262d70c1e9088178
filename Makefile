# Two commands on a fresh machine: make quickstart, make test. Each does all the set-up it needs.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3,$(shell command -v $(name) 2>/dev/null)))
VENV := .venv
TORCH := .venv-torch
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

PYTEST = $(BIN)/python -m pytest -n 2
# Tests compile more than they compute. TensorFlow keeps what it compiled until the process ends (400 MB for each small
# run of training), hence several goes.
OF_THE_QUICKSTART := tests/test_recipes.py tests/test_readme.py tests/test_benchmarks.py
OF_GOING_ON := tests/test_resume.py tests/test_recovery.py tests/test_validation.py
OF_OPTIONS := tests/test_options.py tests/test_batch_size.py tests/test_callbacks.py tests/test_samples.py
OF_EXPORTS := tests/test_export.py tests/test_serving.py tests/test_readers.py
QUICK_XLA := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true

.PHONY: quickstart test lint bench clean

quickstart: $(VENV)/quickstart.installed
	$(BIN)/python -m multimodel.quickstart

test: $(VENV)/dev.installed
	KERAS_BACKEND=jax XLA_FLAGS="$(QUICK_XLA)" $(PYTEST) tests/core tests/test_run.py
	KERAS_BACKEND=tensorflow $(PYTEST) tests/core
	KERAS_BACKEND=tensorflow $(PYTEST) $(OF_THE_QUICKSTART)
	KERAS_BACKEND=tensorflow $(PYTEST) $(OF_GOING_ON)
	KERAS_BACKEND=tensorflow $(PYTEST) $(OF_OPTIONS)
	KERAS_BACKEND=tensorflow $(PYTEST) $(OF_EXPORTS)
	KERAS_BACKEND=tensorflow $(PYTEST) $(addprefix --ignore=,tests/core $(OF_THE_QUICKSTART) $(OF_GOING_ON) $(OF_OPTIONS) $(OF_EXPORTS))

lint: $(VENV)/dev.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/quickstart.installed $(TORCH)/installed
	$(BIN)/python benchmarks/compare.py --torch $(TORCH)/bin/python

clean:
	rm -rf $(VENV) $(TORCH) runs build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/%.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e ".[$*]"
	touch $@

# The rival's, in an environment of its own.
$(TORCH)/installed: | $(BIN)/python
	$(BIN)/python -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.25.0 numpy
	touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; none was found. Set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "Python 3.11 or newer is needed; $(PYTHON) is older. Set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
