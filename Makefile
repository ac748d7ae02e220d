# Every target sets up what it needs; `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup run test test-fast test-server check kernels kernels-routes kernels-gateway format bench soak fuzz docs lock jars clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml bootstrap.py
	@$(PYTHON) bootstrap.py $(VENV) $(PREPARE)
	@touch $@

setup: $(STAMP) ## make .venv from requirements.lock

run: PREPARE := --run
run: $(STAMP) ## start the embedded servers, run the demo, print a table, end (STAY=1 keeps them up)
	@$(BIN)/penstock demo $(if $(STAY),--stay) --installed $(VENV)/.seconds

test: $(STAMP) ## all tests, those with real servers included
	$(BIN)/python -m pytest -m "not soak" $(ARGS)

test-fast: $(STAMP) ## the tests that need no server, in about four minutes on two cores
	$(BIN)/python -m pytest -n auto -m "not server and not slow and not soak and not node" $(ARGS)

# Reading all tests takes a worker half a minute; tests/conftest.py refuses a test that is not found so.
MARKED = $(shell grep -rlE 'mark\.(server|slow|node)' --include='*.py' tests/*/ tests/test_*.py)
MARKED_FOLDERS = $(patsubst %/conftest.py,%,$(filter %/conftest.py,$(MARKED)))
SERVER_TESTS = $(MARKED_FOLDERS) $(filter-out $(MARKED_FOLDERS:=/%),$(MARKED))

# One more than cores: a test that waits for a server leaves its core to another.
test-server: $(STAMP) ## the other tests: real servers, long runs; three workers, each with servers of its own
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder \
		-m "(server or slow or node) and not soak" $(if $(filter tests%,$(ARGS)),,$(SERVER_TESTS)) $(ARGS)

check: $(STAMP) ## ruff format and lint, mypy strict, import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

kernels: kernels-routes kernels-gateway ## compile the kernels into their cache, once; else the first program that needs them does

kernels-routes: $(STAMP)
	@$(BIN)/python -c "import penstock.pipeline.evaluators.kernel.batch_router, penstock.pipeline.delivery.task"

kernels-gateway: $(STAMP)
	@$(BIN)/python -c "import penstock.mapping, penstock.gateway.security.stamp, penstock.wire.kafka.guard, \
		penstock.wire.pulsar.hot, penstock.wire.kernels.json_values"

format: $(STAMP) ## rewrite the sources as ruff wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## every benchmark but those of two versions; ARGS=--quick for a rough answer
	@for b in $(filter-out bench/table.py bench/quiet.py bench/versions.py bench/fused_versions.py,$(wildcard bench/*.py)); do echo "== $$b"; $(BIN)/python $$b $(ARGS) || exit 1; done

soak: $(STAMP) ## the long fault tests; SOAK_ROUNDS=5 for fewer rounds than each has by itself
	$(BIN)/python -m pytest -m soak --timeout 7200 $(ARGS)
	$(if $(ARGS),,HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest -n auto --timeout 7200 \
		-m "hypothesis and not (server or slow or soak or node)")

fuzz: $(STAMP) ## hostile input in front of codecs, kernels and the contract, 60 s each
	$(PYTHON) -m venv .fuzz
	.fuzz/bin/pip install --quiet --disable-pip-version-check --require-hashes -r fuzz/requirements.txt
	PYTHONPATH=src .fuzz/bin/python fuzz/decode.py -max_total_time=60 -len_control=0 -max_len=600
	PYTHONPATH=src:$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
		.fuzz/bin/python fuzz/kernels.py -max_total_time=60 -len_control=0 -max_len=400
	$(BIN)/python -m pytest -m soak tests/contract/test_fuzz.py

docs: $(STAMP) ## build the documentation into site/
	$(BIN)/mkdocs build --strict --quiet

# crc32c is LGPL; kio requires it for record batches, which Penstock reads and writes by itself.
lock: $(STAMP) ## rewrite requirements.lock from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
		--generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-emit-package crc32c --upgrade --quiet \
		-o requirements.lock

jars: $(STAMP) ## rewrite the jar locks from their coordinates
	$(BIN)/python -m penstock.embedded.relock
	$(BIN)/python -m penstock.embedded.relock tests/interop/coordinates.toml tests/hadoop/coordinates.toml

clean: ## remove what the other targets made in this folder
	rm -rf $(VENV) .fuzz build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .penstock
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
