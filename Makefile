# Every target sets up .venv by itself; nothing but Python 3.11, pip and make is needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-federation check bench bench-check format clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: .venv/ready
	$(BIN)/lidfl demo

# One thread: what tests compute is too small for two, and two that wait for each other crawl on a busy machine.
test: export OMP_NUM_THREADS ?= 1
test: .venv/ready
	$(BIN)/python -m pytest

# Real servers and clients, killed and lied to; some minutes. The last results are kept.
test-federation: .venv/ready
	$(BIN)/pip install --quiet --constraint constraints.txt "flwr[simulation]>=1.41,<1.42"
	commit=$$(git describe --always --dirty --exclude=*); { echo $$commit; \
	    echo code $$($(BIN)/python -m tests.flower.fingerprint); $(BIN)/python -m pytest -m federation -vv \
	    --no-header --durations=0 --durations-min=1 --color=no; } | tee results/federation.txt

check: .venv/ready
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

# Peers pin other versions of what we use, so they get an environment of their own.
.venv-bench/ready: pyproject.toml constraints.txt
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --constraint constraints.txt --editable ".[bench]"
	@touch $@

bench: .venv-bench/ready
	.venv-bench/bin/python -m benchmarks

bench-check: .venv/ready
	$(BIN)/python -m benchmarks.check

format: .venv/ready
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	rm -rf .venv .venv-bench
