from __future__ import annotations

import io
import json
import sys

import pytest

from argus import cli


def test_without_ray_nothing_is_measured(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    request = {"workers": ["a", "b"], "check": True}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(request).encode())))
    assert cli.main(["all_reduce", "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert (answer["changed"], list(answer["result"])) == (False, ["skipped"])
