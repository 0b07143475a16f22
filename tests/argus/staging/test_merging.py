"""What merges a checkpoint, with a program in the place of verl's, and room for it on workers."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from argus.staging.checkpoint import MergeRequest, no_room
from argus.staging.merging import SHOWN_BYTES, merge

GIB = 1 << 30


def run(code: Path, program: str, seconds: float = 60) -> tuple[int, str]:
    merger = code / "verl/model_merger"
    merger.mkdir(parents=True)
    (code / "verl/__init__.py").touch()
    (merger / "__init__.py").touch()
    (merger / "__main__.py").write_text(textwrap.dedent(program))
    return merge(str(code), "/checkpoint", str(code / "target"), "/hf", seconds)


def test_verls_merger_gets_the_snapshot_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/other")
    code, output = run(
        tmp_path,
        """
        import os, sys
        print(sys.argv[1:])
        for name in ("PYTHONPATH", "HF_HOME", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", "PYTHONDONTWRITEBYTECODE"):
            print(name, repr(os.environ[name]))
        print("directory", os.getcwd(), "" in sys.path, __name__)
        """,
    )
    target = str(tmp_path / "target")
    assert output.splitlines() == [
        str(["merge", "--backend", "fsdp", "--local_dir", "/checkpoint", "--target_dir", target]),
        f"PYTHONPATH {str(tmp_path) + ':/other'!r}",
        "HF_HOME '/hf'",
        "HF_HUB_OFFLINE '1'",
        "CUDA_VISIBLE_DEVICES ''",
        "PYTHONDONTWRITEBYTECODE '1'",
        "directory / False __main__",
    ]
    assert code == 0


def test_only_the_end_of_a_long_output_is_kept_with_the_exit_code(tmp_path: Path) -> None:
    code, output = run(tmp_path, "print('x' * 1_000_000 + '\\xff'); raise SystemExit(3)")
    assert code == 3
    assert len(output.encode()) <= SHOWN_BYTES and output.endswith("x\u00ff\n")


def test_a_merge_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    code, output = run(tmp_path, "import subprocess; subprocess.run(['sleep', '60'])", seconds=1.0)
    assert (code, output) == (-9, "")


def node(name: str, cpus: float, memory: float, worker: float = 100) -> dict[str, object]:
    return {"NodeName": name, "Resources": {"CPU": cpus, "memory": memory, "worker_node": worker}}


def test_a_worker_needs_enough_of_everything() -> None:
    needs = MergeRequest("job:a@1", 1, "", "", "", "", 3 * GIB).needs
    assert needs == {"CPU": 2, "worker_node": 1, "memory": 8 * GIB}
    assert no_room(needs, [node("w0", 1, 99 * GIB), node("w1", 2, 8 * GIB)]) == ""
    for nodes in ([node("w0", 1, 99 * GIB), node("w1", 99, 8 * GIB - 1)], [node("head", 99, 99 * GIB, worker=0)], []):
        text = no_room(needs, nodes)
        assert text.startswith("needs 2 CPUs and 8.0 GiB of memory on one worker, and none has that (")
    assert "no worker is alive" in text
    assert "w0: 1 CPUs, 99.0 GiB, w1: 99 CPUs, " in no_room(needs, [node("w1", 99, 4 * GIB), node("w0", 1, 99 * GIB)])
