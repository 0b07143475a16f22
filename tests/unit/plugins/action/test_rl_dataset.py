from __future__ import annotations

from ansible_collections.argus.verl.plugins.action.rl_dataset import with_own_paths
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.dataset.upload import UploadFile

HASH = "ab" * 32
ARRIVED = f"/private/datasets/.sums.upload/{HASH}/sums.jsonl"


def test_a_failure_names_files_as_the_controller_does() -> None:
    file = UploadFile(r"/home/me/\1/sums.jsonl", 3, 7, HASH)
    finding = {"where": f"{ARRIVED}:1", "what": "has no answer", "todo": "Correct it.", "severity": "error"}
    result = {"failed": True, "msg": f"{ARRIVED}: x; {ARRIVED}", "finding": finding, "changed": False}
    own = r"/home/me/\1/sums.jsonl"
    assert with_own_paths(result, [file]) == {
        "failed": True,
        "msg": f"{own}: x; {own}",
        "finding": {**finding, "where": f"{own}:1"},
        "changed": False,
    }


def test_other_results_are_not_changed() -> None:
    file = UploadFile("/a/sums.jsonl", 3, 7, HASH)
    assert with_own_paths({"msg": ARRIVED}, [file]) == {"msg": ARRIVED}
    failed = {"failed": True, "msg": ARRIVED}
    assert (
        with_own_paths(failed, [UploadFile("/a/other.jsonl", 3, 7, HASH), UploadFile("/a/sums.jsonl", 3, 7)]) == failed
    )
