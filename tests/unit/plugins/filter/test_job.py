"""What people read of jobs."""

from __future__ import annotations

from ansible_collections.argus.verl.plugins.filter.job import evidence_rows


def test_rows_of_evidence() -> None:
    asked = {"files": 12, "nodes": ["a", "b"], "problems": ["gpu.txt no answer"]}
    assert evidence_rows(asked, "head") == [["head", 12, "a, b", "gpu.txt no answer"]]
    # With the head gone, each worker is asked, and may be gone as well.
    gone = {"results": [{**asked, "item": "w0", "problems": []}, {"item": "w1", "msg": "no such container"}]}
    assert evidence_rows(gone, "head") == [["w0", 12, "a, b", None], ["w1", 0, None, "no such container"]]
