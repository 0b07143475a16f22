"""git with tokens and keys."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from staging_snapshots import TOKEN, commit, git, manifest_at, put
from staging_tools import snapshot, source_of

from argus.snapshot.errors import SourceError
from argus.snapshot.git import Git
from argus.staging.result import Status

pytestmark = pytest.mark.usefixtures("identity")


def test_without_git_only_a_commit_can_be_resolved(
    snapshots: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    source = source_of(f"git+file://{repository}@{'0123456789' * 4}", snapshots)
    assert source.code_id == "verl-012345678901"
    with pytest.raises(SourceError, match=r"git: is not installed on this machine\. Install it"):
        source_of(f"git+file://{repository}@main", snapshots)


def test_in_a_hook_of_git_nothing_is_done_to_its_repository(
    shared_root: Path, snapshots: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=mine", "other")
    own = commit(tmp_path / "other", {"a": ""})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other" / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other" / ".git" / "index"))
    head = snapshot(shared_root, source_of(f"git+file://{repository}@main", snapshots)).name
    checkout = snapshot(shared_root, source_of(str(repository), snapshots))
    monkeypatch.undo()
    assert manifest_at(checkout.path)["commit"][:12] == head.removeprefix("verl-")
    assert git(tmp_path / "other", "rev-parse", "refs/heads/mine") == own
    assert (tmp_path / "other" / ".git" / "HEAD").read_text() == "ref: refs/heads/mine\n"


@pytest.mark.parametrize(
    "text",
    [
        "git+https://ann:SECRET@host/team/verl@main",
        "git+https://SECRET@host/team/verl@main",
        "git+ssh://git:SECRET@host/team/verl@main",
        # Without a ref, or with one that is none, the password must not be taken for a host, nor be printed.
        "git+https://ann:SECRET@host/team/verl",
        "git+https://SECRET@host/team/verl",
        "git+https://ann:SEC/RET@host/team/verl@main",
        "git+https://ann:SECRET@host/team/verl@",
        "git+ftp://ann:SECRET@host/team/verl@main",
        "https://ann:SECRET@host/team/verl",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_printed(
    text: str, snapshots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No server is asked.
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError) as raised:
        source_of(text, snapshots)
    assert "SEC" not in str(raised.value)
    assert "RET" not in str(raised.value)
    assert "is not installed" not in str(raised.value)


def test_a_token_does_not_travel_in_clear(snapshots: Path) -> None:
    with pytest.raises(SourceError, match=r"would get the token unencrypted\. Use https"):
        source_of("git+http://git.example.com/team/verl@main", snapshots, Git(TOKEN))


def test_a_password_in_an_address_is_reported_with_what_to_do(snapshots: Path) -> None:
    with pytest.raises(SourceError, match=r"has a password or a token in it\. Remove it, and set staging_git_token"):
        source_of("git+https://ann:SECRET@host/team/verl@main", snapshots)


def test_a_private_repository_opens_for_a_token(
    shared_root: Path, snapshots: Path, repository: Path, private_host: str, spied_git: Path
) -> None:
    text = f"git+{private_host}/team/verl@main"
    with pytest.raises(SourceError, match=r"git ls-remote: failed: .*a private repository needs a token"):
        source_of(text, snapshots)
    with pytest.raises(SourceError, match="git ls-remote: failed") as raised:
        source_of(text, snapshots, Git("another-token"))
    assert "another-token" not in str(raised.value)
    staged = snapshot(shared_root, source_of(text, snapshots, Git(TOKEN)))
    assert staged.status == Status.STAGED
    assert manifest_at(staged.path)["commit"] == git(repository, "rev-parse", "HEAD")
    assert "fetch" in (spied_git / "argv").read_text()


def test_a_token_is_in_the_environment_of_git_and_nowhere_else(
    shared_root: Path,
    snapshots: Path,
    repository: Path,
    private_host: str,
    spied_git: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What the user has there stays.
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "user.name")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "ann")
    secret = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
    source = source_of(f"git+{private_host}/team/verl@main", snapshots, Git(TOKEN))
    staged = snapshot(shared_root, source)
    argv = (spied_git / "argv").read_text()
    assert {"ls-remote", "fetch"} <= set(argv.split())
    environment = (spied_git / "environment").read_text().splitlines()
    assert {line for line in environment if line.startswith("GIT_CONFIG_") and line[-1] != "1"} >= {
        "GIT_CONFIG_COUNT=2",
        "GIT_CONFIG_VALUE_0=ann",
        f"GIT_CONFIG_KEY_1=http.{private_host}/.extraHeader",
        f"GIT_CONFIG_VALUE_1=Authorization: Basic {secret}",
    }
    for text in (
        argv,
        repr(source),
        *(path.read_text("latin-1") for path in Path(staged.path).rglob("*") if path.is_file()),
    ):
        assert TOKEN not in text
        assert secret not in text
    assert not any(TOKEN in line for line in environment)


def test_git_never_prompts_and_uses_the_given_key(repository: Path, spied_git: Path, tmp_path: Path) -> None:
    Git().commit_of(f"file://{repository}", "main")
    environment = (spied_git / "environment").read_text().splitlines()
    assert "GIT_TERMINAL_PROMPT=0" in environment
    assert "GIT_SSH_COMMAND=ssh -o BatchMode=yes" in environment
    assert not any(line.startswith("GIT_CONFIG_COUNT") for line in environment)
    # An ssh that prints its arguments, and fails.
    put(spied_git, {"bin/ssh": f'#!/bin/sh\necho "$@" >> {spied_git}/ssh\nexit 255\n'})
    (spied_git / "bin" / "ssh").chmod(0o755)
    with pytest.raises(SourceError, match="git ls-remote: failed"):
        Git(ssh_key=str(tmp_path / "my key")).commit_of("ssh://git@host/team/verl", "main")
    assert f"-o BatchMode=yes -o IdentitiesOnly=yes -i {tmp_path}/my key" in (spied_git / "ssh").read_text()
