"""Which samples of what verl writes stay in an archive."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from argus.archive import samples
from argus.archive.archive import Archive
from argus.hooks.redact import Redactor


def mask(text: str) -> str:
    return Redactor(["a-canary-value"]).mask_text(text)


def write(archive: Archive, step: int, scores: Sequence[object], kind: str = "rollouts", **texts: Any) -> None:
    """As verl does."""
    directory = Path(samples.raw_directory(str(archive.path), kind))
    directory.mkdir(parents=True, exist_ok=True)
    rows = [{"input": "in", "output": "out", "gts": "4", "score": score, "step": step, **texts} for score in scores]
    (directory / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def kept(archive: Archive, step: int, kind: str = "rollouts") -> list[dict[str, Any]]:
    return list(samples.read(archive, kind, step))


def test_the_best_the_worst_and_some_others_stay(archive: Archive) -> None:
    write(archive, 1, [number / 10 for number in range(1000)])
    samples.keep(archive, mask, is_over=True)
    scores = [row["score"] for row in kept(archive, 1)]
    assert scores == sorted(scores, reverse=True) and len(scores) == 16
    assert (scores[:4], scores[-4:]) == ([99.9, 99.8, 99.7, 99.6], [0.3, 0.2, 0.1, 0.0])
    assert not list((archive.path / "samples").glob(".*"))


def test_steps_are_spread_over_the_job(archive: Archive) -> None:
    for step in range(1, 301):
        write(archive, step, [1.0])
        samples.keep(archive, mask)
    # The newest step may be incomplete until the end.
    assert samples.kept_steps(archive)["rollouts"][-1] == 299
    write(archive, 0, [0.5], kind="validation")
    samples.keep(archive, mask, is_over=True)
    assert samples.kept_steps(archive)["validation"] == [0]
    steps = samples.kept_steps(archive)["rollouts"]
    assert (steps[:2], steps[-1]) == ([1, 9], 300)
    assert len(steps) <= samples.MAX_STEPS + 1
    assert {after - before for before, after in itertools.pairwise(steps[:-1])} == {8}


def test_texts_are_masked_before_they_are_cut(archive: Archive) -> None:
    half = samples.MAX_CHARS // 2
    text = "x" * (half - 5) + "a-canary-value" + "y" * 3 * half + "the answer"
    write(archive, 1, [1.0], output=text, gts={"target": ["4"]})
    samples.keep(archive, mask, is_over=True)
    [row] = kept(archive, 1)
    assert "canar" not in row["output"] and row["output"].endswith("the answer")
    assert len(row["output"]) < samples.MAX_CHARS + 50
    assert row["gts"] == '{"target": ["4"]}'


def test_what_a_job_leaves_there_is_data(archive: Archive, tmp_path: Path) -> None:
    write(archive, 1, [True, None, "x", 10**400, float("nan"), [1]], output=["\ud800"], gts=7)
    raw = Path(samples.raw_directory(str(archive.path), "rollouts"))
    with (raw / "1.jsonl").open("a") as file:
        file.write("[" * 100_000 + '\n7\n{"score": 2}\n{"score": 3, "out')
    (raw / "other.txt").write_text("stays")
    samples.keep(archive, mask, is_over=True)
    assert [row["score"] for row in kept(archive, 1)][:2] == [2.0, 1.0]
    assert (raw / "other.txt").exists()
    # A link leads to nothing that is removed.
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "7.jsonl").write_text("{}")
    Path(samples.raw_directory(str(archive.path), "validation")).symlink_to(outside)
    samples.keep(archive, mask, is_over=True)
    assert (outside / "7.jsonl").exists()
