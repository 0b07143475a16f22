from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hub import Hub

from argus import cli

# A verb, options of it, and its request as keywords; the exit status and the answer.
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Ask:
    """Runs a verb with --json."""

    def ask(*verb: str, follows: bytes = b"", **request: Any) -> tuple[int, Any]:
        text = json.dumps(request).encode() + b"\n" + follows
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        code = cli.main([*verb, "--json"])
        return code, json.loads(capfd.readouterr().out)

    return ask


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        yield server
