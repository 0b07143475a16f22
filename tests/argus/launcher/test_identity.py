from __future__ import annotations

import socket

from argus.launcher.identity import (
    cluster_name,
    identity,
    mismatch,
    node_name,
)


def test_node_and_cluster_are_told_by_the_environment() -> None:
    environ = identity("worker-0", "mvp", "/private", "/srv/mvp")
    assert (node_name(environ), cluster_name(environ)) == ("worker-0", "mvp")


def test_node_of_an_older_release() -> None:
    assert (node_name({}), cluster_name({})) == (socket.gethostname(), "")


def test_node_of_another_cluster_with_the_same_names() -> None:
    environ = identity("ray-head", "mvp", "/private", "/srv/a")
    assert mismatch("/srv/a", environ) == mismatch("", environ) == mismatch("/srv/b", {}) == ""
    message = mismatch("/srv/b", environ)
    assert message.startswith(
        "ray-head belongs to a cluster mvp with the shared root /srv/a, and the inventory has /srv/b: "
    )
