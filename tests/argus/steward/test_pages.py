"""When the steward has pages written."""

from __future__ import annotations

import threading

import pytest

from argus.steward import cluster


def test_pages_are_written_again_and_again_and_once_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(cluster, "PAGES_SECONDS", 0.2)
    jobs, written, leaving = {"one", "two"}, [], threading.Event()

    def write(names: list[str]) -> None:
        written.append(names)
        match len(written):
            case 2:
                jobs.remove("one")
            case 3:
                jobs.clear()
            case 4:
                leaving.set()

    monkeypatch.setattr(cluster, "write_pages", write)
    thread = threading.Thread(target=cluster.keep_pages, args=(lambda: list(jobs), leaving), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert written == [["one", "two"], ["one", "two"], ["one"], ["two"]]
