# What a user types. Everything is done inside .venv and with the container engine of this machine.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: help setup setup-dev engine image demo down test lint unit image-test snapshots sanity refusals molecule training schema generate docs tarball clean

PYTHON ?= python3
VENV := .venv
INVENTORY ?= inventories/dev
IMAGE := argus-verl-cpu:0.1.0
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help:  ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(VENV)/requirements engine image  ## The environment, a container engine where there is none, the CPU image
	@mkdir -p shared

setup-dev: setup $(VENV)/requirements-dev

$(VENV)/requirements: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "make: $(PYTHON) is older than 3.11; say PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --requirement requirements.txt
# The collection is this directory; Ansible finds it by its name through a link.
	link=$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/ansible_collections/argus; \
	mkdir -p $$link && ln -sfn "$(CURDIR)" $$link/verl
	@touch $@

$(VENV)/requirements-dev: $(VENV)/requirements requirements-dev.txt
	$(VENV)/bin/pip install --quiet --requirement requirements-dev.txt
	@touch $@

engine:
	@tools/engine.sh

image: $(VENV)/requirements engine
	@$(VENV)/bin/python images/cpu/build.py $(IMAGE)

demo: setup  ## From nothing to a trained job: cluster, staging, GRPO, fetch
	ansible-playbook -i $(INVENTORY) playbooks/cluster_up.yml playbooks/stage.yml playbooks/submit.yml playbooks/fetch.yml \
	  -e jobspec=grpo.yaml -e job_wait=true

down: $(VENV)/requirements  ## Containers, network and token of the development cluster gone; data stays
	ansible-playbook -i $(INVENTORY) playbooks/cluster_down.yml $(if $(FORCE),-e allow_disruption=true)

test: lint unit image-test snapshots sanity refusals molecule training  ## Every test
	@echo "all tests passed"

lint: $(VENV)/requirements-dev  ## Style, types, playbooks, changelog
	ruff check .
	ruff format --check .
	yamllint --strict .
# By the names under which the modules import each other.
	@mkdir -p .cache/types/ansible_collections/argus && ln -sfn "$(CURDIR)" .cache/types/ansible_collections/argus/verl
	cd .cache/types && mypy --config-file "$(CURDIR)/pyproject.toml" ansible_collections/argus/verl/plugins
	ansible-lint --strict
	antsibull-changelog lint

unit: $(VENV)/requirements-dev  ## Unit tests
	pytest tests/unit

image-test: setup-dev  ## Unit tests of the CPU backend, in its image
	docker run --rm --volume "$(CURDIR)/images/cpu/verl_cpu/tests:/tests:ro" --workdir /tmp $(IMAGE) \
	  python -m pytest -q -p no:cacheprovider /tests

snapshots: setup-dev  ## Jobs composed against every release of verl that is supported
	pytest tests/snapshots

sanity: $(VENV)/requirements-dev  ## ansible-test sanity, on a built and installed collection
	tools/sanity.sh

refusals: setup-dev  ## What playbooks refuse, and runs that are interrupted
	pytest tests/playbooks

molecule: setup-dev  ## Scenarios against real containers and real Ray
	molecule test --all

training: setup-dev  ## Real training jobs
	pytest tests/training

schema: $(VENV)/requirements  ## docs/jobspec.schema.json, after a change of the JobSpec's keys
	$(VENV)/bin/python tools/jobspec_schema.py

generate: schema  ## The generated parts of the documentation: the schema, tables of roles and of the JobSpec
	$(VENV)/bin/python tools/generate_docs.py

docs: $(VENV)/requirements-dev  ## The documentation as a website, in .cache/docs
	$(VENV)/bin/python tools/build_docs.py

tarball: $(VENV)/requirements
	ansible-galaxy collection build --force --output-path .cache

clean: down  ## Also the environment and caches; data stays
# Snapshots are read-only.
	chmod -R u+w .cache 2>/dev/null || true
	rm -rf $(VENV) .cache .state .mypy_cache .pytest_cache .ruff_cache
