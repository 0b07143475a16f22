"""What stages, with a machine whose user is root, on a shared root that uid 65534 has prepared. Real processes."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.git import Git
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import StagingError as SourceError
from ansible_collections.argus.verl.plugins.plugin_utils.snapshot_source import Sources
from staging_attacks import FORMS, SECRET, Victim, give_to_nobody, public_directory, put_in_place
from staging_snapshots import TAKEN, attached, put, run_program
from staging_store import NOBODY, as_nobody, build_of, manifest_json

from argus.common.shared_root import CODE_DIR, DATASETS_DIR, MODELS_DIR
from argus.staging.store import remove, stage

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be attacked as root")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with public_directory() as directory:
        yield directory


@pytest.fixture
def shared_root(tmp_path: Path) -> Path:
    """A shared root of uid 65534, as jobs have it."""
    root = tmp_path / "shared"
    for name in ("jobs", CODE_DIR, MODELS_DIR, DATASETS_DIR):
        (root / name).mkdir(parents=True)
    give_to_nobody(root)
    return root


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path / "root's")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree that only root can read."""
    source = put(tmp_path / "src", {**TAKEN, "verl/large.bin": "x" * (3 << 20)})
    source.chmod(0o700)
    return source


def code_snapshot(shared_root: Path, source: Path | str, **options: Any) -> dict[str, Any]:
    """As the action does it: root reads the source, and the user of the nodes writes the snapshot."""
    overlays, repair = options.pop("overlays", []), options.pop("repair", False)
    with tempfile.TemporaryDirectory() as scratch:
        sources = Sources(Path("/"), [str(shared_root)], Path(scratch), Git())
        texts = [str(source), *(overlay["path"] for overlay in overlays)]
        try:
            described = [sources.part(text, number > 0) for number, text in enumerate(texts)]
        except SourceError as error:
            return {"failed": True, "msg": str(error)}
        files = {}
        for number, (_part, tree) in enumerate(described):
            for name, opener in tree.content().files.items() if tree else ():
                with opener() as file:
                    files[f"{number}/{name}"] = file.read()
    attachment, tar = attached(files)
    item = {"source": str(source), "code_id": "mine", "overlays": overlays, **options}
    parts = [part for part, _found in described]
    return snapshot(shared_root, item, tar, parts=parts, repair=repair, attachment=attachment)


def snapshot(shared_root: Path, item: dict[str, Any], content: bytes = b"", **more: Any) -> dict[str, Any]:
    request = {"kind": "snapshot", "item": item, "shared_root": str(shared_root), **more}
    answer = run_program(NOBODY, "stage", content, **request)
    findings = [f"{finding['where']}: {finding['problem']} {finding['remedy']}" for finding in answer["findings"]]
    return dict(answer["result"]) or {"failed": True, "msg": "; ".join(findings)}


def remove_snapshot(shared_root: Path, code_id: str = "mine") -> dict[str, Any]:
    return snapshot(shared_root, {"code_id": code_id, "state": "absent"})


def staged_info(shared_root: Path, **options: object) -> dict[str, Any]:
    return dict(run_program(NOBODY, "staged", shared_root=str(shared_root), **options)["result"])


def owners(directory: Path) -> set[int]:
    return {path.lstat().st_uid for path in (directory, *directory.rglob("*"))}


def test_roots_own_source_is_staged_as_the_user_of_the_nodes(shared_root: Path, tree: Path, tmp_path: Path) -> None:
    secret = put(tmp_path / "overlay", {"key.py": "key = 1\n"})
    secret.chmod(0o700)
    answer = code_snapshot(shared_root, tree, overlays=[{"path": str(secret), "to": "mine"}])
    assert answer["status"] == "staged", answer
    target = shared_root / CODE_DIR / "mine"
    assert owners(shared_root) == {NOBODY}
    assert (target / "verl" / "large.bin").stat().st_size == 3 << 20
    assert (target / "mine" / "key.py").read_text() == "key = 1\n"
    assert remove_snapshot(shared_root)["status"] == "removed"
    # A name is only a name.
    for code_id in ("..", "a/b", "/etc", "a\n"):
        for refused in (code_snapshot(shared_root, tree, code_id=code_id), remove_snapshot(shared_root, code_id)):
            assert refused["failed"] and "code_id" in refused["msg"]
    assert list((shared_root / CODE_DIR).iterdir()) == []


def test_a_source_on_the_shared_root_is_not_read_by_root(shared_root: Path, victim: Victim) -> None:
    source = put(shared_root / "user" / "src", TAKEN)
    (source / "verl" / "stolen.py").symlink_to(victim.file)
    (shared_root / "user" / "direct").symlink_to(victim.directory)
    put(victim.directory, {"verl/__init__.py": "", "verl/version/version": "1\n"})
    victim.before = victim.state()
    give_to_nobody(shared_root)
    direct = {"path": str(shared_root / "user" / "direct"), "to": "mine"}
    for path, overlays in ((source, []), (direct["path"], []), (source.parent, [direct])):
        refused = code_snapshot(shared_root, path, overlays=overlays)
        assert refused["failed"] and SECRET not in json.dumps(refused), refused
    assert list((shared_root / CODE_DIR).iterdir()) == []
    victim.require_unchanged()


# What the user of the nodes can write without a loss for anybody else.
AS_GOOD_AS_A_LOCK = ("FIFO", "hard link")


@pytest.mark.parametrize("form", FORMS)
def test_nothing_is_written_through_what_stands_in_the_place_of_a_lock(
    shared_root: Path, tree: Path, victim: Victim, form: str
) -> None:
    lock = shared_root / CODE_DIR / ".mine.lock"
    put_in_place(form, lock, victim.file)
    give_to_nobody(shared_root)
    answer = code_snapshot(shared_root, tree)
    victim.require_unchanged()
    if form in AS_GOOD_AS_A_LOCK:
        assert answer["status"] == "staged"
        return
    assert "mine: cannot be staged: " in str(answer["msg"]) and ".mine.lock" in str(answer["msg"])
    assert "was left unfinished: .mine.lock" in json.dumps(staged_info(shared_root))
    # When it is removed, everything works again.
    lock.rmdir() if form == "directory" else lock.unlink()
    assert code_snapshot(shared_root, tree)["status"] == "staged"


def forge(shared_root: Path, name: str, manifest: object) -> Path:
    """A snapshot whose manifest says what a job likes."""
    put(shared_root / CODE_DIR / name, {"manifest.json": json.dumps(manifest)})
    give_to_nobody(shared_root)
    return shared_root / CODE_DIR / name


def test_a_forged_manifest_does_not_poison_the_next_snapshot(shared_root: Path, tree: Path) -> None:
    assert code_snapshot(shared_root, tree)["status"] == "staged"
    good = manifest_json(shared_root / CODE_DIR / "mine")
    evil = forge(shared_root, "evil", good)
    files = {}
    for name, entry in good["files"].items():
        # Of the same size, read-only, at the time that the manifest has, and with other content.
        put(evil, {name: "!" * entry["size"]})
        (evil / name).chmod(0o444)
        files[name] = {**entry, "mtime_ns": (evil / name).stat().st_mtime_ns}
    forge(shared_root, "evil", {**good, "name": "evil", "files": files})
    assert remove_snapshot(shared_root)["status"] == "removed"
    assert code_snapshot(shared_root, tree)["status"] == "staged"
    target = shared_root / CODE_DIR / "mine"
    for name in TAKEN:
        assert (target / name).read_bytes() == (tree / name).read_bytes()
    # Nor does a snapshot that adds overlays to the forged one take its word.
    mine = put(tree.parent / "overlay", {"a.py": ""})
    refused = code_snapshot(shared_root, "evil", code_id="further", overlays=[{"path": str(mine), "to": "mine"}])
    assert "evil: no longer fits its manifest: " in str(refused["msg"])


ENTRY = {"size": 1, "mtime_ns": 1, "sha256": "0" * 64}
GOOD = {"kind": "snapshot", "name": "bad", "source": "x", "staged_at": "2026-01-01T00:00:00Z", "files": {"a": ENTRY}}
NAMES = ("/etc/passwd", "a/../../b", "a\x1b[2Jb", "a" * 5000)
CHANGES: list[dict[str, Any]] = [
    *({"files": {name: ENTRY}} for name in NAMES),
    *({"files": {"a": {**ENTRY, "size": float("nan")}}}, {"kind": ["snapshot"]}, {"source": "\x1b]0;title\x07"}),
    *({"staged_at": "yesterday"}, {"staged_at": "2026-01-01T00:00:00"}, {"rows": {"train": "many"}}),
]
BAD = ["{", "[]", "[" * 100_000, '{"kind": "snapshot", "x": ' + "9" * 10_000 + "}"]
BAD += [json.dumps({**GOOD, **change}) for change in CHANGES]


def test_bad_manifests_are_rows_and_hide_nothing(shared_root: Path, tree: Path) -> None:
    assert code_snapshot(shared_root, tree)["status"] == "staged"
    for number, text in enumerate(BAD):
        file = put(shared_root / CODE_DIR / f"bad-{number}", {"a": "a"}) / "manifest.json"
        file.write_bytes(text.encode())
    huge = put(shared_root / CODE_DIR / "huge", {"a": "a"}) / "manifest.json"
    with huge.open("wb") as file:
        file.truncate(8 << 40)
    for form in FORMS:
        put_in_place(form, shared_root / CODE_DIR / f"as-{form.replace(' ', '-')}" / "manifest.json", tree / "verl")
        put_in_place(form, shared_root / CODE_DIR / f"is-{form.replace(' ', '-')}", Path("/proc/self"))
    give_to_nobody(shared_root)
    for verify in ("no", "full"):
        entries = {entry["name"]: entry for entry in staged_info(shared_root, verify=verify)["staged"]}
        assert entries["mine"]["problems"] == []
        for number, text in enumerate(BAD):
            assert entries[f"bad-{number}"]["kind"] == "unknown" and entries[f"bad-{number}"]["problems"], text[:99]
        assert "has more than 64 MiB" in entries["huge"]["problems"][0]
    # Another snapshot is staged and removed among them.
    put(tree, {"verl/more.py": ""})
    assert code_snapshot(shared_root, tree, code_id="other")["status"] == "staged"
    assert remove_snapshot(shared_root, "other")["status"] == "removed"
    refused = code_snapshot(shared_root, tree, code_id="bad-0")
    assert "bad-0/manifest.json: is not JSON" in str(refused["msg"])


def test_removal_does_not_follow_links(shared_root: Path, victim: Victim) -> None:
    target = shared_root / CODE_DIR / "mine"
    as_nobody(lambda: stage(build_of(target)).status)
    (target / "more" / "away").symlink_to(victim.directory)
    (target / "way out").symlink_to(victim.file)
    leftover = shared_root / CODE_DIR / ".mine.staging-0123abcd"
    leftover.symlink_to(victim.directory)
    give_to_nobody(shared_root)
    assert as_nobody(lambda: remove(shared_root, "rl_dataset", "mine", target).status) == "removed"
    assert not target.exists() and not leftover.is_symlink()
    victim.require_unchanged()
