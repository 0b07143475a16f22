from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.plugin_utils.following import (
    NO_JOB,
    no_answer,
    no_such_id,
    node_is_gone,
)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"module_stdout": "", "module_stderr": "No such container:\n x\n", "rc": 1}, "No such container: x"),
        # A module that was killed together with its container.
        ({"module_stdout": "", "module_stderr": "", "rc": 137}, "exit code 137"),
    ],
)
def test_a_node_that_is_gone(result: dict[str, Any], message: str) -> None:
    assert node_is_gone(result, "The head h") == f"The head h cannot be reached ({message})"


@pytest.mark.parametrize(
    "result",
    [
        {"changed": False},
        {"failed": True, "msg": "The JobSpec was refused"},
        {"module_stdout": "half a result", "module_stderr": "", "rc": 1},
        # The module itself has failed.
        {"module_stdout": "", "module_stderr": "Traceback (most recent call last):\n  …", "rc": 1},
    ],
)
def test_a_node_that_is_not_gone(result: dict[str, Any]) -> None:
    assert node_is_gone(result, "The head h") == ""


def test_an_id_that_cannot_be_one() -> None:
    assert no_such_id("../x") == "'../x' is not a submission id; status.yml lists the latest jobs"
    assert no_such_id("") == no_such_id(None) == NO_JOB


def test_a_node_without_a_connection() -> None:
    error = AnsibleConnectionFailure("container h is not running on m.\n cluster_up.yml starts it.")
    expected = "The head h cannot be reached: container h is not running on m. cluster_up.yml starts it"
    assert no_answer(error, "The head h") == expected
