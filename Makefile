# What a user types. Everything is done inside .venv and with the container engine of this machine.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
BIN := $(VENV)/bin
INVENTORY ?= inventories/dev
IMAGE := argus-verl-cpu:0.1.0
# The collection is this directory; Ansible finds it by its name through this link.
COLLECTION = $(VENV)/collections/ansible_collections/argus/verl
export PATH := $(CURDIR)/$(BIN):$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
export PIP_DISABLE_PIP_VERSION_CHECK := 1
