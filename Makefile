# Every target sets up .venv by itself; nothing but Python 3.11, pip and make is needed.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-federation test-package check docs reference pictures lock bench bench-check format clean

setup: .venv/ready

# Everything has the hash that requirements.lock says, but for torch, whose build depends on the machine.
.venv/ready: pyproject.toml constraints.txt requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --require-hashes --no-deps --requirement requirements.lock
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/pip check || { echo "requirements.lock is behind pyproject.toml: make lock"; exit 1; }
	@touch $@

lock: .venv/ready
	PATH="$(BIN):$$PATH" $(BIN)/python -m handbook.lock

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

# The wheel in an environment of its own, from the network; a minute or two.
test-package: .venv/ready
	$(BIN)/python -m pytest -m package

check: .venv/ready docs
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

# The site, in site/; a warning is an error.
docs: .venv/ready
	$(BIN)/python -m handbook.build

# The pages of the reference, from the code; the pictures, from kept results.
reference: .venv/ready
	$(BIN)/python -m handbook.reference

pictures: .venv/ready
	$(BIN)/python -m handbook.pictures

# Peers pin other versions of what we use, so they get an environment of their own.
.venv-bench/ready: pyproject.toml constraints.txt
	@test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --constraint constraints.txt --editable ".[bench]"
	.venv-bench/bin/pip install --quiet --no-deps byzfl==0.0.11  # what else it imports is not needed, or stood in for
	@touch $@

bench: .venv-bench/ready
	.venv-bench/bin/python -m benchmarks

bench-check: .venv/ready
	$(BIN)/python -m benchmarks.check

format: .venv/ready
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

clean:
	rm -rf .venv .venv-bench build site
