from __future__ import annotations

import socket

import pytest

from argus.common.identity import cluster_mismatch, cluster_name, identity_variables, node_name


def test_node_of_another_cluster_with_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in identity_variables("", "", "", ""):
        monkeypatch.delenv(name, raising=False)
    assert (node_name(), cluster_name(), cluster_mismatch("/srv/b")) == (socket.gethostname(), "", "")
    for name, value in identity_variables("ray-head", "mvp", "/private", "/srv/a").items():
        monkeypatch.setenv(name, value)
    assert (node_name(), cluster_name()) == ("ray-head", "mvp")
    assert cluster_mismatch("/srv/a") == cluster_mismatch("") == ""
    assert "/srv/a" in cluster_mismatch("/srv/b") and "/srv/b" in cluster_mismatch("/srv/b")
