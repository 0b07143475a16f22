"""Releases, repositories and directories of the controller: a real pip and a real git."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.git import Git
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import StagingError
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import CodeSource
from ansible_collections.argus.verl.plugins.plugin_utils.snapshot_source import Sources
from staging_snapshots import LEFT, TAKEN, TOKEN, SmartHttp, commit, git, plain_git, put, put_wheel


@pytest.fixture(autouse=True)
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_git(monkeypatch)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository of verl, with one commit on main."""
    repository = tmp_path / "team" / "verl"
    repository.mkdir(parents=True)
    git(repository, "init", "--quiet", "--initial-branch=main")
    commit(repository, {**TAKEN, **LEFT})
    return repository


@pytest.fixture
def spied_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git before the real one, which keeps what it was called with: the files `argv` and `environment`."""
    spied = tmp_path / "spied"
    script = f'#!/bin/sh\necho "$@" >> {spied}/argv\nenv >> {spied}/environment\nexec {shutil.which("git")} "$@"\n'
    put(spied, {"bin/git": script})
    (spied / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{spied}/bin{os.pathsep}{os.environ['PATH']}")
    return spied


@pytest.fixture
def private_host(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a host that requires the token."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    handler = type("Handler", (SmartHttp,), {"root": repository.parents[1]})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.fixture
def credentials(private_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own, for that host."""
    put(tmp_path, {"credentials": f"{private_host.replace('//', f'//x-access-token:{TOKEN}@')}\n"})
    helper = f"store --file {tmp_path}/credentials"
    for name, value in {"COUNT": "1", "KEY_0": "credential.helper", "VALUE_0": helper}.items():
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package index that is a directory."""
    index = tmp_path / "index"
    index.mkdir()
    put_wheel(index, "0.9.1")
    put_wheel(index, "0.9.0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return index


class Controller:
    """Sources on a controller that sees the shared root at `shared`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def source(self, text: str, is_overlay: bool = False) -> CodeSource:
        source = self.part(text, is_overlay)[1]
        assert source is not None
        return source

    def part(self, text: str, is_overlay: bool = False) -> tuple[dict[str, Any], CodeSource | None]:
        scratch = Path(tempfile.mkdtemp(dir=self.directory))
        sources = Sources(self.directory, [str(self.directory / "shared")], scratch, Git())
        return sources.part(text, is_overlay)


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


def sent(source: CodeSource) -> tuple[dict[str, str], dict[str, Any]]:
    """The texts and the facts of a source."""
    content, texts = source.content(), {}
    for name, opener in content.files.items():
        with opener() as file:
            texts[name] = file.read().decode()
    return texts, dict(content.facts)


def test_a_release_is_fetched_with_pip(
    index: Path, controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pip is not looked for in the working directory.
    put(tmp_path / "here", {"pip/__init__.py": "", "pip/__main__.py": "raise SystemExit('not the real one')"})
    monkeypatch.chdir(tmp_path / "here")
    source = controller.source(" verl == 0.9.1 ")
    assert (source.label, source.identity, source.code_id) == ("verl==0.9.1", "verl==0.9.1", "verl-0.9.1")
    texts, facts = sent(source)
    assert sorted(texts) == ["verl/__init__.py", "verl/trainer/config/ppo_trainer.yaml", "verl/version/version"]
    assert facts == {"requirements": ["ray[default]>=2.41.0", "vllm==0.24.0; extra == 'vllm'"]}
    with pytest.raises(StagingError, match="No matching"):
        controller.source("verl==7.7").content()
    with zipfile.ZipFile(index / "verl-0.9.1-py3-none-any.whl", "a") as wheel:
        wheel.writestr("verl/../../outside.py", "")
    with pytest.raises(StagingError, match="outside"):
        controller.source("verl==0.9.1").content()


def test_a_branch_a_tag_and_a_commit_of_a_repository(repository: Path, controller: Controller, spied_git: Path) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "tag", "light")
    # A tag precedes a branch of the same name.
    for name in ("v1", "both"):
        git(repository, "tag", "--annotate", "--message=release", name)
    git(repository, "branch", "both")
    git(repository, "checkout", "--quiet", "refs/heads/both")
    git(repository, "update-ref", "refs/heads/both", commit(repository, {"verl/__init__.py": "branch = True\n"}))
    for ref in ("main", "light", "v1", "both", "refs/tags/v1", head):
        (spied_git / "argv").write_text("")
        source = controller.source(f"git+file://{repository}@{ref}")
        assert (source.identity, source.code_id) == (f"commit {head}", f"verl-{head[:12]}")
        # Nothing is fetched before it is needed.
        assert {line.split()[0] for line in (spied_git / "argv").read_text().splitlines()} <= {"ls-remote"}
        assert sent(source) == (TAKEN, {"commit": head, "requirements": ["ray[default]>=2.41.0", "pandas"]})
    for ref in ("v2", "0123456", "ma*n"):
        with pytest.raises(StagingError, match="no tag"):
            controller.source(f"git+file://{repository}@{ref}")
    # A branch that moves meanwhile is refused.
    source = controller.source(f"git+file://{repository}@main")
    git(repository, "checkout", "--quiet", "refs/heads/main")
    git(repository, "update-ref", "refs/heads/main", commit(repository, {"verl/__init__.py": "moved = True\n"}))
    with pytest.raises(StagingError, match="while it was fetched"):
        source.content()


def test_a_repository_brings_no_files_of_the_controller_and_runs_nothing(
    repository: Path, controller: Controller, tmp_path: Path
) -> None:
    program = put(tmp_path, {"program": f"#!/bin/sh\ntouch {tmp_path}/PWNED\ncat 2>/dev/null\n"}) / "program"
    program.chmod(0o755)
    for name in ("uploadpack.packObjectsHook", "core.fsmonitor", "core.alternateRefsCommand"):
        git(repository, "config", name, str(program))
    put(tmp_path, {"id_ed25519": "private"})
    (repository / "verl" / "key.py").symlink_to(tmp_path / "id_ed25519")
    commit(repository, {".gitattributes": "* filter=evil\n"})
    (tmp_path / "PWNED").unlink(missing_ok=True)
    with pytest.raises(StagingError, match=r"verl/key\.py: leads out of"):
        controller.source(f"git+file://{repository}@main").content()
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize(
    "text",
    [
        *("git+https://host/team/verl", "git+https://host/team/verl@", "git+ftp://host/team/verl@main"),
        *("git+ext::sh -c touch% PWNED@main", "git+file:///x@--upload-pack=touch PWNED", "git+https://-oProxy/x@main"),
        *("git+https://host/x@-main", "git+https://host/x@a\nb", "git+https://host/\0@main", "git+fd::17/x@main"),
        *("git+-x@main", "git+ssh://-oProxyCommand=x/y@main"),
        # Passwords. Without a ref, or with one that is none, they must not be taken for a host, nor be printed.
        *("git+https://ann:SECRET@host/team/verl@main", "git+https://SECRET@host/team/verl@main"),
        *("git+https://ann:SECRET@host/team/verl", "git+https://ann:SEC/RET@host/team/verl@main"),
    ],
)
def test_a_repository_is_an_address_with_a_ref_and_never_an_option(
    controller: Controller, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StagingError) as raised:
        controller.source(text)
    # No server is asked.
    assert not any(word in str(raised.value) for word in ("SEC", "RET", "is not installed"))


def add_submodule(repository: Path, url: str, name: str, commit: str) -> None:
    git(repository, "config", "--file", ".gitmodules", f"submodule.{name}.path", name)
    git(repository, "config", "--file", ".gitmodules", f"submodule.{name}.url", url)
    # Without its directory, it would not be committed.
    (repository / name).mkdir(parents=True)
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{commit},{name}")


def test_submodules_come_with_their_commit(
    repository: Path, private_host: str, controller: Controller, request: pytest.FixtureRequest
) -> None:
    team = repository.parent
    commits = {}
    for name in ("deep", "verl-recipe", "secret"):
        git(team, "init", "--quiet", "--initial-branch=main", name)
        commits[name] = commit(team / name, {f"{name}.py": f"{name} = 1\n"})
    add_submodule(team / "verl-recipe", "../deep", "deep", commits["deep"])
    pinned = commit(team / "verl-recipe", {})
    commit(team / "verl-recipe", {"verl-recipe.py": "later = True\n"})
    add_submodule(repository, "../verl-recipe", "recipe/more", pinned)
    # One that is gone, one of this machine, and one that no snapshot has.
    for url, name in (("../gone", "recipe/gone"), (f"file://{team}/secret", "verl/secret"), ("../gone", "docs")):
        add_submodule(repository, url, name, commits["secret"])
    commit(repository, {})
    # A private repository opens with the user's own credentials.
    with pytest.raises(StagingError, match="git ls-remote: failed"):
        controller.source(f"git+{private_host}/team/verl@main")
    request.getfixturevalue("credentials")
    source = controller.source(f"git+{private_host}/team/verl@main")
    texts, facts = sent(source)
    assert TOKEN not in f"{source!r} {facts}"
    more = {"verl-recipe.py": "verl-recipe = 1\n", "deep/deep.py": "deep = 1\n"}
    del texts["recipe/more/.gitmodules"]
    assert texts == {**TAKEN, **{f"recipe/more/{name}": text for name, text in more.items()}}
    gone, secret = facts["report"]
    assert "recipe/gone" in gone and "verl/secret" in secret


def test_git_never_prompts_and_uses_the_given_key(repository: Path, spied_git: Path, tmp_path: Path) -> None:
    Git().commit_of(f"file://{repository}", "main")
    environment = (spied_git / "environment").read_text().splitlines()
    assert {"GIT_TERMINAL_PROMPT=0", "GIT_SSH_COMMAND=ssh -o BatchMode=yes"} <= set(environment)
    assert not any(line.startswith("GIT_CONFIG_COUNT") for line in environment)
    # An ssh that prints its arguments, and fails.
    put(spied_git, {"bin/ssh": f'#!/bin/sh\necho "$@" >> {spied_git}/ssh\nexit 255\n'})
    (spied_git / "bin" / "ssh").chmod(0o755)
    with pytest.raises(StagingError, match="git ls-remote: failed"):
        Git(ssh_key=str(tmp_path / "my key")).commit_of("ssh://git@host/team/verl", "main")
    assert f"-o BatchMode=yes -o IdentitiesOnly=yes -i {tmp_path}/my key" in (spied_git / "ssh").read_text()


def test_in_a_hook_of_git_nothing_is_done_to_its_repository(
    repository: Path, controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=mine", "other")
    head = commit(tmp_path / "other", {"a": ""})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    sources = (f"git+file://{repository}@main", str(repository))
    commits = {controller.source(text).content().facts["commit"] for text in sources}
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert commits == {git(repository, "rev-parse", "HEAD")}
    assert git(tmp_path / "other", "rev-parse", "refs/heads/mine") == head


def test_directories_are_found_from_the_inventory_and_from_home(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = put(tmp_path / "src", TAKEN)
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in ("./src", "~/src", f"{tree}/../src"):
        source = controller.source(text)
        assert (source.label, sent(source)[0]) == (str(tree), TAKEN)
    for text, is_overlay in (("/nowhere", False), (str(tmp_path), False), (f"{tree}/verl/__init__.py", True)):
        with pytest.raises(StagingError):
            controller.source(text, is_overlay)


def test_nothing_on_the_shared_root_is_opened(controller: Controller, tmp_path: Path) -> None:
    below = put(tmp_path / "shared" / "user", {f"src/{name}": text for name, text in TAKEN.items()})
    (tmp_path / "link").symlink_to(below / "src")
    described = {"place": "shared_root", "label": f"{below}/src", "path": "user/src"}
    assert controller.part(f"{below}/src") == (described, None)
    for text in (f"{tmp_path}/link", f"git+file://{below}/src@main", f"git+file://{tmp_path}/link@main"):
        with pytest.raises(StagingError, match="shared root"):
            controller.part(text)
