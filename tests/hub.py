"""A server on this machine that answers the requests of the real client as the hub of HuggingFace does.

In tests:  with Hub() as hub: commit = hub.add("org/name", {"config.json": b"{}"}); … endpoint=hub.url
Manually:  python tests/hub.py --port 8080 --root DIR, with DIR/models/<org>/<name>/… and DIR/datasets/<org>/<name>/…

Its answers were read in huggingface_hub 1.33.0 (hf_api.py, file_download.py, utils/_http.py) and observed on the real
hub: small files by a redirect on the same host, large ones (LFS) by a redirect to another host, which must not get the
token. It needs only Python's standard library.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

KINDS = ("models", "datasets")
# Files that the hub stores in LFS, by the .gitattributes that it adds to every repository.
LFS = (".safetensors", ".bin", ".parquet", ".pt", ".pth", ".h5", ".gguf", ".onnx", ".msgpack", ".zip")
CHUNK = 64 * 1024
# The default revision.
MAIN = "main"


@dataclass(frozen=True)
class File:
    """One file of a commit, in memory or on disk."""

    content: bytes | Path
    size: int
    sha256: str
    blob_id: str
    is_lfs: bool

    @classmethod
    def of(cls, name: str, content: bytes | Path) -> File:
        sha256, size = hashlib.sha256(), 0
        git = git_hash(content.stat().st_size if isinstance(content, Path) else len(content))
        for part in parts_of(content):
            sha256.update(part)
            git.update(part)
            size += len(part)
        is_lfs = name.endswith(LFS)
        if is_lfs:
            pointer = pointer_to(sha256.hexdigest(), size)
            git = git_hash(len(pointer))
            git.update(pointer)
        return cls(content, size, sha256.hexdigest(), git.hexdigest(), is_lfs)

    @property
    def etag(self) -> str:
        return self.sha256 if self.is_lfs else self.blob_id

    @property
    def lfs(self) -> dict[str, Any]:
        if not self.is_lfs:
            return {}
        pointer = pointer_to(self.sha256, self.size)
        return {"lfs": {"sha256": self.sha256, "size": self.size, "pointerSize": len(pointer)}}


def git_hash(size: int) -> Any:
    """The beginning of git's own hash of a file."""
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def pointer_to(sha256: str, size: int) -> bytes:
    """The content that git itself stores for a file in LFS."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n".encode()


def parts_of(content: bytes | Path, start: int = 0) -> Iterator[bytes]:
    if isinstance(content, bytes):
        for at in range(start, len(content), CHUNK):
            yield content[at : at + CHUNK]
        return
    with content.open("rb") as file:
        file.seek(start)
        while part := file.read(CHUNK):
            yield part


@dataclass
class Repository:
    """Branches and tags, the files of each commit, and the access."""

    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    # Without the token, it does not seem to exist.
    private: bool = False
    # Its list of files is public, but downloads need the token.
    gated: bool = False


@dataclass
class Fault:
    """A failure of requests for paths that contain this text, so many times."""

    path: str
    times: int
    # Closes the connection after so many bytes of the answer.
    drop_after: int | None = None
    # Waits after so many bytes until Hub.go_on is set.
    stall_after: int | None = None
    status: int | None = None
    # Sends no answer until Hub.go_on is set.
    silent: bool | None = None


@dataclass
class Request:
    """A request, for tests; it is recorded, and in the log, before the client has the answer."""

    method: str
    path: str
    range: str | None
    token: str | None
    status: int = 0
    sent: int = 0

    @property
    def name(self) -> str:
        """The requested name, without directories."""
        return urlsplit(self.path).path.rpartition("/")[2]


class Hub:
    """The server with its repositories, its failures, and the requests that it got."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, log: Path | None = None) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.token = "hf_right"
        # Bytes per second, for each connection.
        self.rate: float | None = None
        self.faults: list[Fault] = []
        self.go_on = threading.Event()
        self.requests: list[Request] = []
        # Sent instead of a file's content, with the announced size and hash unchanged.
        self.corrupted: dict[str, bytes] = {}
        # Whether blobs=true is supported; some mirrors do not.
        self.tells_hashes = True
        # A text in every error.
        self.echo = ""
        self.log = log
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.hub = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Hub:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()

    def add(
        self,
        name: str,
        files: Mapping[str, bytes | Path],
        revision: str = MAIN,
        *,
        kind: str = "models",
        private: bool = False,
        gated: bool = False,
    ) -> str:
        """Adds a commit to a repository, with a branch or tag that points at it, and returns its hash."""
        repository = self.repositories.setdefault((kind, name), Repository())
        repository.private, repository.gated = private, gated
        listed = {path: File.of(path, content) for path, content in files.items()}
        text = "".join(f"{file.blob_id} {path}\n" for path, file in sorted(listed.items()))
        commit = hashlib.sha1(f"{kind} {name}\n{text}".encode(), usedforsecurity=False).hexdigest()
        repository.commits[commit] = listed
        repository.revisions[revision] = commit
        return commit

    def add_directory(self, root: Path) -> None:
        """Adds all repositories below a directory."""
        for kind in KINDS:
            for directory in sorted(path for path in root.glob(f"{kind}/*/*") if path.is_dir()):
                paths = [path for path in directory.rglob("*") if path.is_file()]
                files: dict[str, bytes | Path] = {path.relative_to(directory).as_posix(): path for path in paths}
                self.add(directory.relative_to(root / kind).as_posix(), files, kind=kind)

    def fail(self, path: str, times: int = 1, **how: int) -> None:
        """Adds a failure, see Fault."""
        self.faults.append(Fault(path, times, **how))

    def fault(self, path: str, kind: str) -> Fault | None:
        """The failure for this request, which is counted."""
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and fault.path in path and getattr(fault, kind) is not None:
                    fault.times -= 1
                    return fault
        return None

    def note(self, request: Request) -> None:
        with self._lock, self.log.open("a", encoding="utf-8") if self.log else contextlib.nullcontext() as file:
            if file is not None:
                file.write(json.dumps(asdict(request)) + "\n")

    def gets(self, name: str = "") -> list[Request]:
        """The successful requests for the content of a file, or of all files."""
        return [
            request
            for request in self.requests
            if request.method == "GET" and request.status in (200, 206)
            if request.path.startswith(("/cdn/", "/api/resolve-cache/")) and name in ("", request.name)
        ]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> Hub:
        return self.server.hub  # type: ignore[attr-defined,no-any-return]

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.record = Request(self.command, self.path, self.headers.get("Range"), self._token())
        self.hub.requests.append(self.record)
        self.hub.note(self.record)
        # The client may have closed the connection.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._route(urlsplit(self.path).path)

    do_HEAD = do_GET  # noqa: N815

    def _token(self) -> str | None:
        authorization = self.headers.get("Authorization")
        return authorization.removeprefix("Bearer ") if authorization else None

    def _route(self, quoted: str) -> None:
        path = unquote(quoted)
        fault = self.hub.fault(path, "status")
        if fault is not None and fault.status is not None:
            return self._error(fault.status, "", "it is out of order")
        if self.hub.fault(path, "silent"):
            self.hub.go_on.wait()
        for pattern, method in (
            (r"/api/(models|datasets)/([^/]+/[^/]+)(?:/revision/(.+))?", self._info),
            (r"/(?:(datasets)/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self._resolve),
            (r"/api/resolve-cache/(models|datasets)/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", self._small),
            (r"/cdn/(models|datasets)/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", self._large),
        ):
            # A revision with slashes is quoted.
            match = re.fullmatch(pattern, quoted)
            if match:
                kind, name, revision, *file = (part and unquote(part) for part in match.groups())
                return method(kind or "models", name, revision or MAIN, *file)
        return self._error(404, "", "no such path")

    # --- Requests ----------------------------------------------------------------------------------------------------

    def _info(self, kind: str, name: str, revision: str) -> None:
        result = self._commit(kind, name, revision)
        if result is None:
            return
        commit, files = result
        siblings = [
            {"rfilename": path}
            | ({"size": file.size, "blobId": file.blob_id, **file.lfs} if self.hub.tells_hashes else {})
            for path, file in sorted(files.items())
        ]
        said = {"_id": "0", "id": name, "sha": commit, "private": False, "tags": [], "downloads": 0, "likes": 0}
        self._json({**said, "siblings": siblings})

    def _resolve(self, kind: str, name: str, revision: str, path: str) -> None:
        result = self._commit(kind, name, revision, content=True)
        if result is None:
            return None
        commit, files = result
        file = files.get(path)
        if file is None:
            return self._error(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        rest = f"{kind}/{name}/{commit}/{quote(path)}"
        headers = {"X-Repo-Commit": commit, "X-Linked-Size": str(file.size), "X-Linked-ETag": f'"{file.etag}"'}
        if file.is_lfs:
            # For a client, this is another host.
            return self._redirect(302, f"http://localhost:{self.hub.port}/cdn/{rest}?Signature=0", headers)
        return self._redirect(307, f"/api/resolve-cache/{rest}", {"X-Repo-Commit": commit})

    def _small(self, kind: str, name: str, commit: str, path: str) -> None:
        file = self.hub.repositories[kind, name].commits[commit][path]
        self._content(f"{name}/{path}", file, {"X-Repo-Commit": commit, "ETag": f'"{file.etag}"'})

    def _large(self, kind: str, name: str, commit: str, path: str) -> None:
        if self._token() is not None:
            # The same as S3, which accepts only one kind of authorization.
            return self._error(400, "", "only one of a signature and a token is allowed")
        file = self.hub.repositories[kind, name].commits[commit][path]
        return self._content(f"{name}/{path}", file, {"ETag": f'"{file.sha256}"', "Accept-Ranges": "bytes"})

    def _commit(
        self, kind: str, name: str, revision: str, *, content: bool = False
    ) -> tuple[str, dict[str, File]] | None:
        """The requested commit with its files; or None, after an error was sent."""
        token, repository = self._token(), self.hub.repositories.get((kind, name))
        if token is not None and token != self.hub.token:
            self._error(401, "", "Invalid credentials in Authorization header")
        elif repository is None or (repository.private and token is None):
            # Without access, the answer does not tell whether it exists.
            self._error(401 if token is None else 404, "RepoNotFound", "Repository not found")
        elif content and repository.gated and token is None:
            self._error(401, "GatedRepo", f"Access to model {name} is restricted.")
        elif (commit := repository.revisions.get(revision, revision)) not in repository.commits:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return commit, repository.commits[commit]
        return None

    # --- Answers -----------------------------------------------------------------------------------------------------

    def _begin(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.record.status = status
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()

    def _json(self, said: object) -> None:
        body = json.dumps(said).encode()
        self._begin(200, len(body), {"Content-Type": "application/json"})
        if self.command == "GET":
            self._write(body)

    def _redirect(self, status: int, to: str, headers: Mapping[str, str]) -> None:
        self._begin(status, 0, {**headers, "Location": to})

    def _error(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        message = f"{message} {self.hub.echo}".strip()
        body = json.dumps({"error": message}).encode()
        codes = {"X-Error-Code": code} if code else {}
        self._begin(status, len(body), {**(headers or {}), **codes, "X-Error-Message": message})
        if self.command == "GET":
            self._write(body)

    def _content(self, path: str, file: File, headers: Mapping[str, str]) -> None:
        content, size = self.hub.corrupted.get(path, file.content), file.size
        if isinstance(content, bytes):
            size = len(content)
        offset = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(offset[1]) if offset else 0
        if start and start >= size:
            return self._error(416, "", "Range Not Satisfiable", {"Content-Range": f"bytes */{size}"})
        partial = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if offset else {}
        self._begin(206 if offset else 200, size - start, {**headers, **partial})
        if self.command == "HEAD":
            return None
        drop, stall = self.hub.fault(path, "drop_after"), self.hub.fault(path, "stall_after")
        limit = drop.drop_after if drop is not None else None
        for part in parts_of(content, start):
            if stall is not None and stall.stall_after is not None and self.record.sent + len(part) > stall.stall_after:
                before = part[: max(0, stall.stall_after - self.record.sent)]
                self._write(before)
                self.hub.go_on.wait()
                part, stall = part[len(before) :], None
            if limit is not None and self.record.sent + len(part) >= limit:
                self._write(part[: limit - self.record.sent])
                return self._hang_up()
            self._write(part)
            if self.hub.rate:
                time.sleep(len(part) / self.hub.rate)
        return None

    def _write(self, part: bytes) -> None:
        self.record.sent += len(part)
        self.wfile.write(part)

    def _hang_up(self) -> None:
        """Closes the connection, like a network failure."""
        self.wfile.flush()
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


# --- Content ---------------------------------------------------------------------------------------------------------


def safetensors(count: int, seed: int = 0) -> bytes:
    """A file in the format of safetensors with one tensor of so many numbers."""
    pattern = bytes((seed + place) % 251 for place in range(251))
    data = (pattern * (4 * count // 251 + 1))[: 4 * count]
    header = {f"layer.{seed}": {"dtype": "F32", "shape": [count], "data_offsets": [0, len(data)]}}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def model(shards: int = 2, count: int = 64 * 1024) -> dict[str, bytes]:
    """The files of a model that is complete, but has no useful weights."""
    names = [f"model-{place:05d}-of-{shards:05d}.safetensors" for place in range(1, shards + 1)]
    weights = {f"layer.{place}": name for place, name in enumerate(names)}
    config = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "torch_dtype": "float32"}
    said: dict[str, Any] = {
        "config.json": config,
        "generation_config.json": {},
        "tokenizer.json": {"version": "1.0", "model": {"type": "BPE"}},
        "tokenizer_config.json": {"chat_template": "{{ messages }}"},
        "model.safetensors.index.json": {"metadata": {"total_size": 4 * count * shards}, "weight_map": weights},
    }
    return {
        ".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n",
        "README.md": b"# A model\n",
        **{name: json.dumps(content).encode() for name, content in said.items()},
        **{name: safetensors(count, place) for place, name in enumerate(names)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="the directory that has models/ and datasets/")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--token", help="make all repositories private, with this token")
    parser.add_argument("--rate", type=float, help="bytes per second, for each connection")
    parser.add_argument("--log", type=Path, help="a file for all requests, one line of JSON each")
    parser.add_argument("--drop-after", type=int, help="close connections after so many bytes of a file")
    parser.add_argument("--drops", type=int, default=1, help="how often")
    args = parser.parse_args()
    hub = Hub(args.host, args.port, args.log)
    hub.add_directory(args.root)
    hub.rate = args.rate
    if args.token:
        hub.token = args.token
        for repository in hub.repositories.values():
            repository.private = True
    if args.drop_after is not None:
        hub.fail("", args.drops, drop_after=args.drop_after)
    for (kind, name), repository in hub.repositories.items():
        print(f"{kind} {name} {repository.revisions[MAIN]}", flush=True)
    print(f"serving on {args.host}:{hub.port}", flush=True)
    hub._server.serve_forever()


if __name__ == "__main__":
    main()
