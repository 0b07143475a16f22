# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the steward answers on a port of the head, beside those of Ray's metrics: Prometheus, and the pages of jobs."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import sys
import threading
from collections.abc import Callable, Iterable
from http.server import HTTPServer
from pathlib import Path

from prometheus_client import CollectorRegistry, MetricsHandler

from ..jobs.bundle import INDEX, PAGE
from ..launcher.archive import Archive
from ..launcher.reading import UnreadableError, read_bytes
from .metrics import Jobs

# In the environment of a head, a port of its plan; that of the steward is so many further.
PORT_OF_DASHBOARD, FURTHER = "DASHBOARD_METRIC_PORT", 3
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable
# How long the next part of a request may take.
REQUEST_SECONDS = 2.0
PAGE_BYTES, PIECE_BYTES = 32 << 20, 1 << 16
# Jobs can write to archives: a page of theirs runs as one of no site, and reaches nothing.
POLICY = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


class Handler(MetricsHandler):
    """Answers Prometheus without a key, as Ray does, and people with the pages. archives: as for serve."""

    archives: Callable[[], Iterable[Archive]]
    key = ""

    def do_GET(self) -> None:  # noqa: N802 - the name of the library
        _root, key, *rest = f"{self.path}//".split("/")
        if not self.key or not hmac.compare_digest(key.encode(), self.key.encode()):
            super().do_GET()
        elif (content := self.page([*filter(None, rest)])) is None:
            self.send_error(404)
        else:
            self.send_response(200)
            for name, value in (("Content-Type", "text/html"), ("Content-Security-Policy", POLICY)):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            # The time of a request is counted anew for each piece.
            for begin in range(0, len(content), PIECE_BYTES):
                self.wfile.write(content[begin : begin + PIECE_BYTES])

    def page(self, path: list[str]) -> bytes | None:
        """The list of jobs, or the page of one; None without it."""
        if path == [INDEX] or (path[1:] == [PAGE] and not path[0].startswith(".")):
            for jobs in {archive.jobs for archive in self.archives()}:
                with contextlib.suppress(OSError, ValueError, UnreadableError):
                    return read_bytes(jobs.joinpath(*path), PAGE_BYTES)
        return None


def key_of(token: str) -> str:
    """What the address of a page begins with: pages.yml has it from the token of the cluster, too."""
    return hashlib.sha256(f"{token.strip()} pages".encode()).hexdigest()


def serve(archives: Callable[[], Iterable[Archive]]) -> None:
    """Answer one request after the other: who connects, or a shared root that hangs, keeps jobs from nothing.

    archives: of the jobs that this steward has looked after.
    """
    registry = CollectorRegistry()
    registry.register(Jobs(archives))
    token = ""
    with contextlib.suppress(OSError, ValueError):
        token = Path(os.environ.get(TOKEN_PATH, "")).read_text("utf-8")
    own = {"registry": registry, "archives": staticmethod(archives), "key": key_of(token) if token else ""}
    handler = type("OwnHandler", (Handler,), {**own, "timeout": REQUEST_SECONDS})
    try:
        server = HTTPServer(("", int(os.environ[PORT_OF_DASHBOARD]) + FURTHER), handler)
    except (KeyError, ValueError, OverflowError, OSError) as error:
        print(f"Prometheus gets no metrics of jobs: {error!r}", file=sys.stderr, flush=True)
        return
    threading.Thread(target=server.serve_forever, daemon=True).start()
