"""Rows from verl's own scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hub import Hub
from staging_datasets import NEW, OLD, asked, from_hub, lines, put, read, refused, rl_row, scripted, snapshot, source
from staging_tools import manifest_json

from argus.staging.manifest import Status


@pytest.mark.parametrize("flags", [OLD, NEW], ids=["up to 0.5", "since 0.6"])
def test_verls_own_scripts_are_run_whatever_they_call_their_output(
    raw: Path, root: Path, flags: tuple[str, str]
) -> None:
    code = snapshot(root, flags)
    before = sorted(path.relative_to(code) for path in code.rglob("*"))
    options = scripted(raw, root)
    assert asked(root, **options).status == Status.STAGED
    assert [row["extra_info"]["index"] for row in [*read(root), *read(root, "val")]] == [0, 1, 2, 3, 4]
    target = root / "datasets/data"
    assert sorted(path.name for path in target.iterdir()) == ["manifest.json", "train.parquet", "val.parquet"]
    manifest = manifest_json(target)
    assert manifest["source"] == "sums.py of verl-main"
    assert {name: manifest["identity"][name] for name in ("script", "code_path", "arguments")} == {
        "script": "sums.py",
        "code_path": "verl-main",
        "arguments": options["arguments"],
    }
    assert sorted(path.relative_to(code) for path in code.rglob("*")) == before
    assert asked(root, **options).status == Status.EXISTS
    assert asked(root, **{**options, "code_path": str(code)}).status == Status.EXISTS
    assert "was staged with arguments [" in refused(
        root, **{**options, "arguments": ["--local_dataset_path", "/other"]}
    )


def test_a_script_sees_the_snapshot_and_the_shared_cache(raw: Path, root: Path) -> None:
    code = snapshot(root, extra="sys.exit(3)")
    said = refused(root, **scripted(raw, root))
    assert "sums.py: ended with exit code 3:\nread 5 rows\n" in said
    assert f"\nPYTHONPATH {code}\nHF_HOME {root}/hf\nPYTHONDONTWRITEBYTECODE 1\n" in said


def test_a_script_gets_endpoint_and_token(raw: Path, root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_node")
    put(hub)
    options = from_hub(raw, root, hub)
    assert asked(root, **options).status == Status.STAGED
    assert {each.token for each in hub.asked if "team/sums" in each.path} == {hub.token}
    assert hub.token not in (root / "datasets/data/manifest.json").read_text()
    # Endpoint and token are not part of its identity.
    assert asked(root, **{**options, "endpoint": None, "token": None}).status == Status.EXISTS


def test_a_token_in_the_output_of_a_script_is_not_shown(raw: Path, root: Path) -> None:
    snapshot(root, extra="sys.exit(os.environ['HF_TOKEN'] + ' at ' + os.environ['HF_ENDPOINT'])")
    options = scripted(raw, root, endpoint="https://mirror.example.com/", token="hf_right\n")
    said = refused(root, **options)
    assert "\n…\n at https://mirror.example.com\n" in said
    assert "hf_right" not in said
    assert "hf_right" not in repr(source(root, options))
    assert 'endpoint: "mirror" is not an address' in refused(root, **{**options, "endpoint": "mirror"})


def test_val_rows_apply_if_a_script_writes_no_validation(raw: Path, root: Path) -> None:
    snapshot(root, extra="os.remove(os.path.join(directory, 'test.parquet'))")
    assert "val: has no rows" in refused(root, **scripted(raw, root))
    asked(root, **scripted(raw, root, val_rows=1))
    assert (len(read(root)), len(read(root, "val"))) == (3, 1)


def test_a_script_that_writes_nothing_is_an_error(raw: Path, root: Path) -> None:
    snapshot(root, extra="[path.unlink() for path in pathlib.Path(directory).iterdir()]")
    assert "wrote no train.parquet, but nothing:\nread 5 rows" in refused(root, **scripted(raw, root))


def test_the_output_of_a_script_is_checked(raw: Path, root: Path) -> None:
    snapshot(root)
    file = lines(raw / "b.jsonl", [rl_row(1, data_source=""), rl_row(2)])
    said = refused(root, **scripted(raw, root, arguments=["--local_dataset_path", file]))
    assert "train: has an empty data_source" in said


@pytest.mark.parametrize("check", [True, False])
def test_a_script_that_is_not_there_or_has_no_output_flag(raw: Path, root: Path, check: bool) -> None:
    code = snapshot(root, ("", "args.hdfs_dir"))
    said = refused(root, **scripted(raw, root), check=check)
    assert "sums.py: has neither of the options --local_save_dir and --local_dir" in said
    (code / "examples/data_preprocess/sums.py").rename(code / "examples/data_preprocess/gsm8k.py")
    said = refused(root, **scripted(raw, root), check=check)
    assert "cannot be read (No such file or directory); the scripts there are: gsm8k.py" in said
    assert "A snapshot of a release has none" in said
