# One-word targets; `make help` explains them. The work is done by tools/*, so that each can be run by itself.
# `make` starts from nothing: every target first sets up as much of the environment as it needs (`setup-…`).
SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PY := .venv/bin/python
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help setup demo check test test-all repeat soak lint generate pins bench bench-audit coverage-report wheels images test-cluster kind-up clean

help: ## explain these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## make .venv from the pins with all that tests and lint need, build the engine (a moment when nothing changed)
	@python=$$(tools/find-python.sh) && "$$python" -m tools.provision

# Only what one target needs, for whoever never asks for more: the parts are in tools/provision.py.
setup-%:
	@python=$$(tools/find-python.sh) && "$$python" -m tools.provision $*

demo: setup-demo $(if $(AUDIT),setup-audit) ## run the main job: all flights through a broker that is killed and started again (KEEP=1 leaves it up, AUDIT=1 audits it)
	@$(PY) -m examples.flights.demo

check: setup-lint ## after each edit: lint, the engine's tests, and every test that needs no other process
	@$(PY) -m tools.check

test: setup-test ## run every test, of the engine (cargo) and of everything else (pytest); ARGS="-k name" narrows pytest
	@tools/test.sh $(ARGS)

test-all: setup-lint ## all that make test takes a share of, too: every write of the operator's stories, thousands of seeds
	@tools/test-all.sh

repeat: setup-test ## run tests again and again with load beside them: TIMES=10 TIERS="pure or loop or broker or etcd"
	@$(PY) -m tools.repeat $(if $(TIMES),--times $(TIMES)) $(if $(TIERS),--tiers "$(TIERS)")

soak: setup-test ## load, a fault of process or disk, a restart, and a verdict, again and again: CYCLES=30 SEED=7
	@$(PY) -m tests.soak --cycles $(or $(CYCLES),30)

world: setup-test ## go on with the seeds of the world where the last run stopped, and add them up: SEEDS=1000
	@$(PY) -m tests.world --seeds $(or $(SEEDS),1000)

lint: setup-lint ## check format, types, imports, clippy, generated code and tidiness
	@$(PY) -m tools.lint

generate: setup-run ## make all generated code again: Python and Rust stubs, schemas, reference pages
	@$(PY) -m tools.generate

pins: setup-uv ## choose versions anew: requirements/*.txt from requirements/*.in (needs the network)
	@tools/pins.sh

bench: setup-run ## measure, and write bench/results/latest.json
	@$(PY) -m bench

bench-audit: setup-demo setup-audit ## measure audits of a night with up to ten million messages (ARGS="--sizes 1000000 --hot 0")
	@$(PY) -m bench.audits $(ARGS)

coverage-report: setup-test ## print which rows of the catalogue tests show, by product and area; write build/rows.json
	@$(PY) -m tools.coverage_report

wheels: setup-build ## build the wheels of both distributions into dist/
	@tools/wheels.sh

images: setup-build ## build the images of broker, operator and audits (Docker, or buildah into the local cluster) and say their sizes
	@tools/images.sh

test-cluster: setup-test ## run the end-to-end tests with real pods on KUBECONFIG, or on the local cluster, which is started
	@tools/test-cluster.sh $(ARGS)

kind-up: setup-run ## start a Kubernetes with kind (needs Docker and kind) and load our images into it
	@tools/kind-up.sh

clean: ## remove everything that was built, the environment too
	@rm -rf .venv build dist core/target core/protogen/target .mypy_cache .ruff_cache .pytest_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
