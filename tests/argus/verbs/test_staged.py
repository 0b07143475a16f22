"""argus staged and argus gc."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from staging_snapshots import put

from argus import cli
from argus.common.shared_root import CODE_DIR, DATASETS_DIR
from argus.staging.manifest import FileEntry, Manifest

DAYS = {"oldest-but-used": 5, "older": 4, "old": 3, "newest": 0, "undated": None}


@pytest.fixture
def run(tmp_path: Path, ask: Callable[..., Any]) -> Any:
    """Runs a verb, and returns its answer."""

    def run(verb: str, **request: Any) -> dict[str, Any]:
        code, answer = ask(verb, shared_root=str(tmp_path), **request)
        assert code == 0
        return dict(answer)

    return run


@pytest.fixture(autouse=True)
def staged(tmp_path: Path) -> Path:
    """Snapshots of different age, of which a job uses the oldest, and a dataset."""
    for name, days in DAYS.items():
        when = None if days is None else (datetime.now(UTC) - timedelta(days)).isoformat(timespec="seconds")
        facts = {"kind": "snapshot", "name": name, "source": f"/src/{name[:3]}", "commit": "abc", "staged_at": when}
        put(tmp_path / CODE_DIR / name, {"manifest.json": Manifest(facts).text()})
    entry = FileEntry(2048, "0" * 64, 0)
    dataset = Manifest({"kind": "rl_dataset", "staged_at": "2020-01-01T00:00:00Z"}, {"train.parquet": entry})
    put(tmp_path / DATASETS_DIR / "sums", {"manifest.json": dataset.text()})
    put(tmp_path / "jobs" / "j1", {"config/job_spec.json": '{"code_path": "oldest-but-used"}', "status.json": "{}"})
    return tmp_path / CODE_DIR


def left(staged: Path) -> set[str]:
    return {path.name for path in staged.iterdir()}


def test_a_table_of_what_is_staged(run: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / DATASETS_DIR / "by-hand").mkdir()
    (tmp_path / DATASETS_DIR / ".rest.staging-0123abcd").mkdir()
    result = run("staged")["result"]
    rows = {row[1]: row for row in result["rows"]}
    assert rows["sums"] == ["rl_dataset", "sums", "2 KiB", "2020-01-01T00:00:00Z", None, None]
    assert rows["oldest-but-used"][4:] == ["/src/old abc", "j1"]
    assert rows["by-hand"] == ["unknown", "by-hand", None, None, None, None]
    assert [entry["name"] for entry in result["staged"]] == [row[1] for row in result["rows"]]
    # A user may have put a directory there by hand.
    assert {(finding["where"], finding["severity"]) for finding in result["findings"]} == {
        ("by-hand", "warning"),
        (str(tmp_path / DATASETS_DIR / "rest"), "warning"),
        (str(tmp_path / DATASETS_DIR / "sums"), "error"),
    }
    assert run("staged", verify="no")["result"]["findings"][0]["severity"] == "warning"
    assert cli.main(["staged", "--shared-root", str(tmp_path)]) == 1
    shown = capfd.readouterr().out
    assert "oldest-but-used" in shown and "train.parquet is missing" in shown
    assert cli.main(["staged", "--shared-root", str(tmp_path), "--verify", "no"]) == 0


@pytest.mark.parametrize(
    ("keep", "days", "gone"),
    [(1, 0, {"old", "older"}), ("2", "0", {"older"}), (0, 2.5, {"old", "older"}), (2, 2.5, {"older"}), (9, 1, set())],
)
def test_old_snapshots_are_removed(run: Any, staged: Path, keep: int | str, days: float | str, gone: set[str]) -> None:
    for check in (True, False):
        answer = run("gc", keep=keep, keep_days=days, check=check)
        result = answer["result"]
        assert (answer["changed"], set(result["removed"]), result["findings"]) == (bool(gone), gone, [])
        verdicts = {row[0]: row[3] for row in result["rows"]}
        assert {name for name, verdict in verdicts.items() if verdict == "to be removed"} == gone
        assert (set(verdicts), verdicts["oldest-but-used"]) == (set(DAYS), "used by j1")
        assert left(staged) == (set(DAYS) if check else set(DAYS) - gone)


def test_declared_snapshots_stay(run: Any) -> None:
    # By its code id; or the newest of its source.
    declared = [{"source": "x", "code_id": "older"}, {"source": "/src/old"}, {"source": "/src/new", "state": "absent"}]
    assert run("gc", keep_days=1, declared=declared, check=True)["result"]["removed"] == []
    assert run("gc", keep_days=1, declared=declared[:1], check=True)["result"]["removed"] == ["old"]


def test_without_a_rule_nothing_is_removed(run: Any, staged: Path, tmp_path: Path) -> None:
    answer = run("gc")
    (finding,) = answer["result"]["findings"]
    assert (answer["changed"], finding["severity"], len(answer["result"]["rows"])) == (False, "error", len(DAYS))
    assert cli.main(["gc", "--shared-root", str(tmp_path)]) == 1
    assert left(staged) == set(DAYS)
    assert cli.main(["gc", "--shared-root", str(tmp_path), "--keep", "2"]) == 0
    assert left(staged) == set(DAYS) - {"older"}
