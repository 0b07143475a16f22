"""Source trees, repositories and wheels for the tests of snapshots."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from importlib.util import source_from_cache
from pathlib import Path
from typing import Any

import pytest
from staging_store import manifest_json

from argus.staging.source_tree import content_identity

SETUP = """
from setuptools import setup
install_requires = ["ray[default]>=2.41.0", "pandas"]
TEST_REQUIRES = ["pytest"]
setup(name="verl", install_requires=install_requires)
"""
# What a snapshot takes of a checkout, and what it does not.
TAKEN = {
    "verl/__init__.py": "",
    "verl/version/version": "0.10.0.dev0\n",
    "verl/trainer/config/ppo_trainer.yaml": "a: 1\n",
    "recipe/dapo/main.py": "dapo = True\n",
    "examples/run.sh": "run\n",
}
LEFT = {"tests/test_all.py": "", "setup.py": SETUP}
IGNORED = {
    "verl/__pycache__/gone.cpython-311.pyc": "compiled",
    "verl/.git": "gitdir: ../.git/modules/verl",
    "verl.egg-info/PKG-INFO": "",
    ".git/HEAD": "",
}
TOKEN = "t0ken-that-nobody-may-see"


def plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """A git without the configuration of this machine."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ann@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


def put(directory: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory


def git(directory: Path, *arguments: str) -> str:
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(repository: Path, texts: Mapping[str, str]) -> str:
    put(repository, texts)
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=change")
    return git(repository, "rev-parse", "HEAD")


class SmartHttp(BaseHTTPRequestHandler):
    """Repositories below `root`, by git's own server, for clients with the token."""

    root: Path

    def do_GET(self) -> None:
        secret = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {secret}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=True)
        headers, _, content = done.stdout.partition(b"\r\n\r\n")
        self.send_response(200)
        for line in headers.decode().splitlines():
            self.send_header(*line.split(": ", 1))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


def put_wheel(directory: Path, version: str, version_file: bool = True) -> None:
    with zipfile.ZipFile(directory / f"verl-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("verl/__init__.py", f"__version__ = {version!r}\n")
        wheel.writestr("verl/trainer/config/ppo_trainer.yaml", "a: 1\n")
        if version_file:
            wheel.writestr("verl/version/version", f"{version}\n")
        wheel.writestr("tests/test_all.py", "")
        wheel.writestr("../outside.py", "")
        wheel.writestr(
            f"verl-{version}.dist-info/METADATA",
            f"Metadata-Version: 2.1\nName: verl\nVersion: {version}\n"
            # As the real one: the Python here must not matter.
            "Requires-Python: >=4\n"
            "Requires-Dist: ray[default]>=2.41.0\nRequires-Dist: vllm==0.24.0; extra == 'vllm'\n\nverl\n",
        )
        wheel.writestr(
            f"verl-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"verl-{version}.dist-info/RECORD", "")


def files(directory: Path) -> list[str]:
    """Without the bytecode of what is there, which staging adds."""
    paths = (path for path in directory.rglob("*") if path.is_file())
    return sorted(
        path.relative_to(directory).as_posix()
        for path in paths
        if path.suffix != ".pyc" or not Path(source_from_cache(path)).exists()
    )


def manifest_at(path: str | Path) -> dict[str, Any]:
    manifest = manifest_json(Path(path))
    assert manifest is not None
    return manifest


def edit(file: Path, text: str) -> None:
    """As a user who ignores the permissions."""
    file.chmod(0o644)
    file.write_text(text)


def attached(files: Mapping[str, bytes], *more: tarfile.TarInfo) -> tuple[dict[str, Any], bytes]:
    """Files as a request announces them, and the tar with them. more: further members."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in more:
            archive.addfile(member)
    identity = content_identity({name: hashlib.sha256(content).hexdigest() for name, content in files.items()})
    return {"identity": identity, "size": sum(map(len, files.values()))}, tar.getvalue()


# The tests' Python may be out of reach for another user: everything is imported first.
PROGRAM = """
import os, sys
from argus import cli
from argus.verbs import stage, staged
user = int(sys.argv.pop(1))
os.chdir("/")
os.setgroups([])
os.setgid(user)
os.setuid(user)
cli.run()
"""


def run_program(user: int, verb: str, content: bytes = b"", **request: object) -> dict[str, Any]:
    """The answer of a verb of the program, run by a user without any right of root."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(user), verb, "--json"],
        input=json.dumps(request).encode() + b"\n" + content,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "HOME": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
