# Each target does all the set-up it needs. PYTHON=… names the interpreter, ARGS=… goes to what the target runs.

.DEFAULT_GOAL := help
BIN := .venv/bin
export PYTHON

.PHONY: help setup demo test check check-latest bench lock environment

help: ## say what the targets do
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/make \1|\2/' | awk -F'|' '{ printf "  %-18s %s\n", $$1, $$2 }'

setup: environment ## the environment, the broker's files and the default model; nothing is fetched twice
	@$(BIN)/python -m streams.broker.fetch
	@$(BIN)/answerby models pull smollm2-135m

demo: setup ## play the example log against a real broker and the real model (ARGS=--json for a summary a program can read)
	@$(BIN)/answerby demo $(ARGS)

test: setup ## the whole suite, real broker and real model included
	$(BIN)/python -m pytest $(ARGS)

check: environment ## lint, format, types, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

check-latest: ## the suite with the newest versions that the declared ranges allow, in an environment of its own
	@.ci/environment .venv-latest newest
	@.venv-latest/bin/python -m streams.broker.fetch
	@.venv-latest/bin/answerby models pull smollm2-135m
	.venv-latest/bin/python -m pytest $(ARGS)

bench: ## the benchmarks; results as JSON under bench/results/
	@test -e bench/__main__.py || { echo "error: there are no benchmarks in this version" >&2; exit 2; }
	@$(MAKE) --no-print-directory setup
	@$(BIN)/python -m bench $(ARGS)

lock: ## write requirements.lock anew from pyproject.toml (needs uv)
	@head -n 1 requirements.lock >requirements.lock.new
	uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --no-header --no-emit-index-url --group dev pyproject.toml >>requirements.lock.new
	@mv requirements.lock.new requirements.lock

environment:
	@.ci/environment .venv locked
