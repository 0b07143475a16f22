"""The environment that modules take over on the host of a node without a container."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils import node_environment
from ansible_collections.argus.verl.plugins.module_utils.cluster import supervisor
from ansible_collections.argus.verl.plugins.module_utils.node_environment import ENTER, enter_node


class FailedError(Exception):
    pass


def fail(msg: str, **more: Any) -> None:
    assert more == {"node_is_down": True}
    raise FailedError(msg)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(sys, "path", list(sys.path))
    os.environ["HOME"] = str(tmp_path)
    os.environ.pop(ENTER, None)


def test_without_a_node_nothing_changes() -> None:
    before = dict(os.environ)
    enter_node(fail)
    assert os.environ == before


def test_the_environment_of_the_node_is_taken_over(tmp_path: Path) -> None:
    os.environ |= {ENTER: str(tmp_path), "KEPT": "1", "PATH": "/bin"}
    (tmp_path / "node.json").write_text(json.dumps({"environment": {"PATH": "/x", "PYTHONPATH": "/a::/b"}}))
    enter_node(fail)
    assert (os.environ["KEPT"], os.environ["PATH"], sys.path[:2]) == ("1", "/x", ["/a", "/b"])
    assert ENTER not in os.environ


def test_a_node_that_was_never_started(tmp_path: Path) -> None:
    os.environ[ENTER] = str(tmp_path / "worker-0")
    with pytest.raises(FailedError, match=r"not up: .*worker-0/node\.json does not exist\. cluster_up\.yml"):
        enter_node(fail)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"environment": 1}'])
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    os.environ[ENTER] = str(tmp_path)
    (tmp_path / "node.json").write_text(text)
    with pytest.raises(FailedError, match=r"node\.json cannot be read \(.*\)\. cluster_up\.yml writes it again"):
        enter_node(fail)


def test_it_is_the_file_of_the_supervisor() -> None:
    assert node_environment.ORDER == supervisor.ORDER
