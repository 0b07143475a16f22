from __future__ import annotations

import socket

import pytest

from argus.common.identity import cluster_name, identity, mismatch, node_name


def test_node_of_another_cluster_with_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in identity("", "", "", ""):
        monkeypatch.delenv(name, raising=False)
    assert (node_name(), cluster_name(), mismatch("/srv/b")) == (socket.gethostname(), "", "")
    for name, value in identity("ray-head", "mvp", "/private", "/srv/a").items():
        monkeypatch.setenv(name, value)
    assert (node_name(), cluster_name()) == ("ray-head", "mvp")
    assert mismatch("/srv/a") == mismatch("") == ""
    assert "/srv/a" in mismatch("/srv/b") and "/srv/b" in mismatch("/srv/b")
