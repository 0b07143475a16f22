from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.module_utils.cluster.images import INPUTS_LABEL
from ansible_collections.argus.verl.plugins.modules import node_image

IMAGE = "registry.example.org/mine:1"
# Notes its commands; a build leaves an image with the label that it was asked for, unless there is a file of that name.
ENGINE = """#!{python}
import json, pathlib, sys
here, command = pathlib.Path({here!r}), sys.argv[1:]
with (here / "commands").open("a") as file:
    print(json.dumps(command), file=file)
if command[:2] == ["image", "inspect"]:
    print((here / "image").read_text())
    sys.exit()
print("\\n".join(f"line {{number}}" for number in range(30)))
if (here / f"{{command[0]}}-fails").exists():
    sys.exit(3)
if command[0] == "build":
    assert sys.stdin.read() == "the context"
    inputs = command[command.index("--label") + 1].partition("=")[2]
    (here / "image").write_text(json.dumps([{{"Id": "sha256:1", "Config": {{"Labels": {{{label!r}: inputs}}}}}}]))
"""


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    program = tmp_path / "docker"
    program.write_text(ENGINE.format(python=sys.executable, here=str(tmp_path), label=INPUTS_LABEL))
    program.chmod(0o755)
    (tmp_path / "image").write_text("[]")
    (tmp_path / "context.tar").write_text("the context")
    return program


def result(engine: Path, capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    build = {"context": str(engine.parent / "context.tar"), "dockerfile": "d", "inputs": "abc", "args": {"N": "1 2"}}
    build |= arguments.pop("build", {})
    given = {"engine": str(engine), "image": IMAGE, "build": build, **arguments}
    with patch_module_args(given), pytest.raises(SystemExit):
        node_image.main()
    return dict(json.loads(capsys.readouterr().out))


def commands(engine: Path) -> list[list[str]]:
    return [json.loads(line) for line in (engine.parent / "commands").read_text().splitlines()]


def test_build(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = result(engine, capsys, state="built")
    assert (answer["changed"], answer["id"]) == (True, "sha256:1")
    build, _inspect = commands(engine)
    options = ["--tag", IMAGE, "--label", f"{INPUTS_LABEL}=abc", "--file", "d", "--build-arg", "N=1 2", "--force-rm"]
    assert build == ["build", *options, "-"]


def test_push(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result(engine, capsys, state="built", build={"push": True})
    assert commands(engine)[-1] == ["push", IMAGE]
    (engine.parent / "push-fails").touch()
    answer = result(engine, capsys, state="built", build={"push": True})
    assert answer["msg"] == f"pushing {IMAGE} failed with exit code 3: line 29"


def test_build_that_fails_shows_its_last_lines(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (engine.parent / "build-fails").touch()
    answer = result(engine, capsys, state="built")
    assert answer["msg"] == "the build failed with exit code 3: line 29"
    assert answer["output"] == [f"line {number}" for number in range(10, 30)]


def test_pull(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = result(engine, capsys, state="pulled")
    assert absent["msg"] == f"{engine} has not pulled {IMAGE}, although it reports no error"
    (engine.parent / "image").write_text(json.dumps([{"Id": "sha256:2", "Config": {"Labels": {"a": "b"}}}]))
    answer = result(engine, capsys, state="pulled")
    assert (answer["changed"], answer["id"], answer["labels"]) == (True, "sha256:2", {"a": "b"})
    assert commands(engine)[-2:] == [["pull", "--quiet", IMAGE], ["image", "inspect", IMAGE]]
    (engine.parent / "pull-fails").touch()
    assert result(engine, capsys, state="pulled")["msg"] == f"pulling {IMAGE} failed with exit code 3: line 29"


def test_check_mode_runs_nothing(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert result(engine, capsys, state="built", _ansible_check_mode=True)["changed"] is True
    assert not (engine.parent / "commands").exists()


def test_errors(engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = result(engine, capsys, state="loaded", path="/gone.tar", sha256="1")
    assert missing["msg"] == "/gone.tar cannot be opened: No such file or directory"
    unsaved = result(engine, capsys, state="saved", shared_root=str(engine.parent), cluster="mvp")
    assert unsaved["msg"] == f"the image {IMAGE} is no longer here: run the playbook again"
    removed = result(engine, capsys, state="removed", shared_root=str(engine.parent), path="/gone.tar")
    assert removed["changed"] is False
