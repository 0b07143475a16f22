from __future__ import annotations

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.plugin_utils.following import (
    NO_JOB,
    no_answer,
    no_such_id,
)


def test_an_id_that_cannot_be_one() -> None:
    assert no_such_id("../x") == "'../x' is not a submission id; status.yml lists the latest jobs"
    assert no_such_id("") == no_such_id(None) == NO_JOB


def test_a_node_without_a_connection() -> None:
    error = AnsibleConnectionFailure("container h is not running on m.\n cluster_up.yml starts it.")
    expected = "The head h cannot be reached: container h is not running on m. cluster_up.yml starts it"
    assert no_answer(error, "The head h") == expected
