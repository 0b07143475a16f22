from __future__ import annotations

import os
import socket

import pytest

from argus.common.identity import cluster_name, identity, mismatch, node_name


def on_node(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith("ARGUS_VERL_")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


def test_node_and_cluster_are_told_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    on_node(monkeypatch, {})
    assert (node_name(), cluster_name(), mismatch("/srv/b")) == (socket.gethostname(), "", "")
    on_node(monkeypatch, identity("worker-0", "mvp", "/private", "/srv/mvp"))
    assert (node_name(), cluster_name()) == ("worker-0", "mvp")


def test_node_of_another_cluster_with_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    on_node(monkeypatch, identity("ray-head", "mvp", "/private", "/srv/a"))
    assert mismatch("/srv/a") == mismatch("") == ""
    assert mismatch("/srv/b").startswith(
        "ray-head belongs to a cluster mvp with the shared root /srv/a, and the inventory has /srv/b: "
    )
