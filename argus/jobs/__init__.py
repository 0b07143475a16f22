# SPDX-License-Identifier: Apache-2.0
"""Operations on jobs: submit, stop, describe, list and report them, and take their nodes out of Ray.

Verbs call them in a node, and the controller prints reports with them. Operations that change something reach the head
through `services.Services`, which tests replace.
"""
