# `make demo` and `make test` are all that a newcomer needs; both set up what they use.
.DEFAULT_GOAL := help
.PHONY: help setup demo test lint unit sandbox real slow gpu real-repos real-model device-bundle clean

PYTEST := .venv/bin/python -P -m pytest -p no:cacheprovider

help:           ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup:          ## make .venv with everything that the demo and the tests need
	@scripts/setup.sh

demo: setup     ## the whole path on a small inference engine: minutes, no GPU, no token
	.venv/bin/ksmith demo

test: setup lint unit sandbox real  ## everything that runs without a GPU

lint: setup     ## format, lint and types
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

unit: setup     ## budget: 1 minute
	$(PYTEST) -n auto -m "not sandbox and not real and not gpu and not slow"

sandbox: setup  ## sandboxed workers; budget: 6 minutes
	$(PYTEST) -m "sandbox and not real and not gpu and not slow"

real: setup real-repos real-model  ## compilers, git, SGLang, LMDeploy, a small model; budget: 12 minutes
	KSMITH_REAL_REPOS=$(CURDIR)/.real $(PYTEST) -m "real and not gpu and not slow"

slow: setup real-repos  ## by hand; no budget
	KSMITH_REAL_REPOS=$(CURDIR)/.real $(PYTEST) -m "slow and not gpu"

gpu: setup real-repos   ## on a machine with an NVIDIA GPU
	KSMITH_REAL_REPOS=$(CURDIR)/.real $(PYTEST) -m gpu

real-repos: setup       ## unpack the Python files of SGLang and LMDeploy into .real/ (never committed)
	@scripts/real_repos.sh

real-model: setup       ## put a small language model and a server for it into .real/ (never committed)
	@scripts/real_model.sh

device-bundle:  ## a folder to carry to a GPU machine that has torch and triton but no network
	python3 scripts/device_bundle.py

clean:          ## remove everything that is made here
	rm -rf .venv .real device-bundle build *.egg-info
