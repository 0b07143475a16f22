from __future__ import annotations

from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.storage import mount_findings
from samples import HEALTHY, PRIVATE

EXPECTED = Expectation(shared_root=PRIVATE.path)


def found(**changed: object) -> list[tuple[str, str]]:
    """The findings about three machines of which the last one has another mount."""
    mounts = {"a": PRIVATE, "b": PRIVATE, "c": replace(PRIVATE, **changed)}
    contexts = {name: Context(name, replace(HEALTHY, mounts=[mount]), EXPECTED) for name, mount in mounts.items()}
    return [(finding.key, finding.where) for finding in mount_findings(contexts)]


def test_mounts_that_differ_are_named() -> None:
    assert found() == []
    assert found(fstype="lustre") == [("storage.type", "c")]
    assert found(source="other:/private") == [("storage.source", "c")]
    assert found(options=[*PRIVATE.options, "nolock"]) == [("storage.options", "c")]
    assert found(fstype="ext4") == [("storage.type", "c"), ("storage.local", "c")]


def test_options_of_the_client_are_no_difference() -> None:
    assert found(options=["clientaddr=10.0.0.9", *reversed(PRIVATE.options)]) == []


def test_a_mount_that_cannot_be_read_is_not_compared() -> None:
    assert found(fstype="ext4", error="stale") == []
