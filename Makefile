# Commands for users and developers. They use .venv and the container engine of this machine.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup setup-dev engine browser image image-vllm demo down budget test checks systems elsewhere lint unit attacks mutation image-test snapshots sanity refusals rigs molecule podman training acceptance schema generate docs lock audit sbom licences release clean

PYTHON ?= python3
VENV := .venv
INVENTORY ?= inventories/dev/hosts.yml
IMAGE := argus-verl-cpu:0.1.0
VLLM_IMAGE := argus-verl-cpu-vllm:0.1.0
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Ansible refuses other encodings, and locales that are not installed.
export LC_ALL := C.UTF-8
# Where it is set, each process compiles plugins and tests again.
unexport PYTHONDONTWRITEBYTECODE

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/requirements engine image  ## Create the environment, install a container engine if there is none, build the CPU image
	@mkdir -p shared

setup-dev: setup image-vllm browser $(VENV)/requirements-dev

$(VENV)/requirements: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "make: $(PYTHON) is older than 3.11; pass PYTHON=python3.11")'
	@echo "Installing Ansible and what it needs in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
# Wheels only: pip compares these with their hashes, but not the packages with which it would build others.
	@$(VENV)/bin/pip install --quiet --require-hashes --only-binary :all: --requirement requirements.txt
# The collection is this directory; links let Ansible and Python find it and its program by their names.
	@packages=$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	ln -sfn "$(CURDIR)/argus" "$$packages/argus"; link=$$packages/ansible_collections/argus; \
	mkdir -p "$$link" && ln -sfn "$(CURDIR)" "$$link/verl"
	@printf '#!/bin/sh\nexec "%s" "%s" "$$@"\n' "$(CURDIR)/$(VENV)/bin/python" "$(CURDIR)/bin/argus_command.py" >$(VENV)/bin/argus && chmod +x $(VENV)/bin/argus
	@touch $@

$(VENV)/requirements-dev: $(VENV)/requirements requirements-dev.txt
# Packages without a wheel are built with the setuptools of requirements.txt.
	$(VENV)/bin/pip install --quiet --require-hashes --no-build-isolation --use-pep517 --requirement requirements-dev.txt
	@touch $@

engine:
	@tools/engine.sh

browser:
	@tools/browser.sh

image: $(VENV)/requirements engine
	@$(VENV)/bin/python images/cpu/build.py $(IMAGE)

image-vllm: image  ## Build the CPU image with vLLM
	@$(VENV)/bin/python images/cpu/build.py $(VLLM_IMAGE) --vllm $(IMAGE)

demo: setup  ## Run everything once: cluster, staging, a GRPO job, fetch
	@ARGUS_COMMAND='$(if $(filter file,$(origin INVENTORY)),,-i $(INVENTORY))' ansible-playbook -i $(INVENTORY) \
	  playbooks/{cluster_up,stage,submit,fetch}.yml -e jobspec=grpo.yaml -e job_wait=true
	@echo; echo "The cluster stays up. The commands above work after '. .venv/bin/activate'; 'make down' removes the cluster."

down: $(VENV)/requirements  ## Remove containers, network and token of the development cluster; data stays
	@ansible-playbook -i $(INVENTORY) playbooks/cluster_down.yml $(if $(FORCE),-e allow_disruption=true)

budget: $(VENV)/requirements  ## Print the size of the collection and the slowest tests, and compare it with its limits
	@$(VENV)/bin/python tools/budget.py

test: setup-dev  ## Run every test
	@tools/test.sh

checks: lint unit attacks docs image-test snapshots sanity  ## Run the tests without a cluster

systems: refusals training  ## Run the tests with the tests' cluster

elsewhere: rigs molecule podman  ## Run the tests with clusters and machines of their own

lint: $(VENV)/requirements-dev  ## Check style, types, rooms, names, playbooks, changelog, licences
	ruff check .
	ruff format --check .
	yamllint --strict .
# With the names by which the modules import each other.
	@mkdir -p .cache/types/ansible_collections/argus && ln -sfn "$(CURDIR)" .cache/types/ansible_collections/argus/verl
	cd .cache/types && mypy --config-file "$(CURDIR)/pyproject.toml" ansible_collections/argus/verl/plugins
	$(PYTEST) tests/source
	ansible-lint --strict
	antsibull-changelog lint
	$(VENV)/bin/python images/cpu/sbom.py argus.verl | $(VENV)/bin/python tools/licences.py

# make budget reads the times.
PYTEST = pytest --junitxml=.cache/durations/$@.xml
# In memory where there is room: staging writes everything to the disk.
MEMORY := $(shell [ "$$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1)" -ge 2 ] 2>/dev/null && echo /dev/shm)
IN_MEMORY = temporary=$$(mktemp -d $(if $(MEMORY),-p $(MEMORY))); trap 'chmod -R u+w "$$temporary"; rm -rf "$$temporary"' EXIT; \
	  PYTEST_DEBUG_TEMPROOT=$$temporary $(PYTEST)
# Each part collects its own tests only, and prints them when it ends. Some tests wait, hence more parts than cores.
PARTS = $(MAKE) --no-print-directory --jobs 5 --output-sync --keep-going
unit: $(VENV)/requirements-dev  ## Run the unit tests
	@$(PARTS) unit-1 unit-2 unit-3 unit-4 unit-5

attacks: $(VENV)/requirements-dev  ## Test what hostile jobs may leave, as another user against root
	@$(PARTS) attacks-1 attacks-2

unit-1: TESTS = tests/argus/[a-f]*
unit-2: TESTS = tests/argus/[g-p]*
unit-3: TESTS = tests/argus/[q-s]*
unit-4: TESTS = tests/argus/[t-z]* tests/unit/[!p]*
unit-5: TESTS = tests/unit/p*
attacks-1: TESTS = tests/attacks/test_[a-m]*
attacks-2: TESTS = tests/attacks/test_[n-z]*
unit-% attacks-%:
	@$(IN_MEMORY) $(TESTS)

COUNT ?= 200
SEED ?= 1
mutation: $(VENV)/requirements-dev  ## Check that unit tests notice COUNT random changes of the code
	$(VENV)/bin/python tools/mutation.py --count $(COUNT) --seed $(SEED)

SBOM = docker run --rm --pull never --network none $(1) cat /usr/share/argus-verl/sbom.cdx.json
image-test: setup-dev  ## Run the unit tests of the CPU backend in its image, check the licences of its packages
	docker run --rm --volume "$(CURDIR)/images/cpu/verl_cpu/tests:/tests:ro" --workdir /tmp $(IMAGE) \
	  python -m pytest -q -p no:cacheprovider /tests
	$(call SBOM,$(VLLM_IMAGE)) | $(VENV)/bin/python tools/licences.py

snapshots: setup-dev  ## Compose jobs with every supported release of verl
	$(PYTEST) tests/snapshots

sanity: $(VENV)/requirements-dev  ## Run ansible-test sanity on the built and installed collection
	tools/sanity.sh

refusals: setup-dev  ## Test refusals and interrupted runs of playbooks
	$(PYTEST) tests/playbooks

rigs: setup-dev  ## Test plugins in Ansible, a release, connections, a real NFS, images on two machines, and benchmarks
	$(PYTEST) tests/commands tests/connection tests/rigs

molecule: setup-dev  ## Run the scenarios with real containers and real Ray
	@failed=; for scenario in $(notdir $(patsubst %/molecule.yml,%,$(wildcard molecule/*/molecule.yml))); do \
	  molecule test --scenario-name $$scenario || failed="$$failed $$scenario"; done; \
	[ -z "$$failed" ] || { echo "failed scenarios:$$failed"; exit 1; }

podman: setup-dev  ## Run a scenario with Podman: it creates nodes, starts one of them again, and removes them
	@if [ "$$(id -u)" != 0 ]; then echo "skipped: the scenario first_cluster with Podman, for whose user root is needed"; \
	else tools/podman.sh $(IMAGE) && ARGUS_VERL_TEST_ENGINE=podman molecule test --scenario-name first_cluster; fi

training: setup-dev  ## Run real training jobs
	$(PYTEST) tests/training

chaos: setup-dev  ## Make each fault of tests/faults.py CHAOS_COUNT times (1) under a real job, and write docs/faults.md
	CHAOS_PAGE=1 pytest tests/chaos

acceptance: setup-dev  ## Run the acceptance list of docs/from_compose.md, which is a part of the training jobs
	pytest tests/training -m acceptance

schema: $(VENV)/requirements  ## Write docs/jobspec.schema.json after a change of the JobSpec's keys
	$(VENV)/bin/python tools/jobspec_schema.py

generate: schema  ## Write the generated parts of the documentation
	$(VENV)/bin/python tools/generate_docs.py

docs: $(VENV)/requirements-dev  ## Test the documentation, and build it as a website in .cache/docs
	@$(PYTEST) tests/docs
	$(VENV)/bin/python tools/build_docs.py

# Existing pins and hashes stay, unless UPGRADE=1. uv reads UV_DEFAULT_INDEX instead of pip's configuration. torch comes
# from PyTorch's own index, or from the directory UV_FIND_LINKS.
LOCK := uv pip compile --quiet --generate-hashes --no-emit-index-url --custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)
lock: $(VENV)/requirements-dev  ## Write the locks after a change of requirements*.in; UPGRADE=1 updates dependencies too
	$(LOCK) --universal --python-version 3.11 requirements.in --output-file requirements.txt
	$(LOCK) --universal --python-version 3.11 requirements-dev.in --output-file requirements-dev.txt
	$(LOCK) --python-platform linux --python-version 3.11 $(if $(UV_FIND_LINKS),,--torch-backend cpu) \
	  images/cpu/requirements.in --output-file images/cpu/requirements.txt
# Without the packages of the CPU image, on which it is built.
	$(LOCK) --python-platform linux --python-version 3.11 --constraint images/cpu/requirements.txt \
	  --override images/cpu/vllm/overrides.txt images/cpu/vllm/requirements.in --output-file images/cpu/vllm/requirements.txt \
	  $$(sed -n 's/^\([a-z0-9-]*\)==.*/--no-emit-package \1/p' images/cpu/requirements.txt)
	$(LOCK) --no-deps --python-platform linux --python-version 3.12 images/cuda/requirements.in \
	  --output-file images/cuda/requirements.txt
	sed '/^transferqueue/,$$d' images/cuda/requirements.txt >images/rocm/requirements.txt

audit: $(VENV)/requirements-dev  ## Compare all pinned packages with known vulnerabilities; asks PyPI
	@mkdir -p .cache
# Advisories are about releases; PyPI does not know their CPU builds.
	sed 's/+cpu / /' images/cpu/requirements.txt >.cache/audit.txt
# Strict: a package that the service does not know is a failure.
	pip-audit --strict --disable-pip --require-hashes --progress-spinner off \
	  --requirement requirements-dev.txt --requirement .cache/audit.txt

sbom:  ## Print the image's bill of materials (CycloneDX)
	@$(call SBOM,$(IMAGE))

licences: $(VENV)/requirements  ## List the licences of the Python packages in the image
	@$(call SBOM,$(IMAGE)) | $(VENV)/bin/python tools/licences.py --list

release: $(VENV)/requirements  ## Build the collection's tarball and the wheel with the command argus, in .cache
	ansible-galaxy collection build --force --output-path .cache
	$(VENV)/bin/pip wheel --quiet --no-deps --wheel-dir .cache .

clean: down  ## Also remove the environment and caches; data stays
# Snapshots are read-only.
	chmod -R u+w .cache 2>/dev/null || true
	rm -rf $(VENV) .cache .state .mypy_cache .pytest_cache .ruff_cache
