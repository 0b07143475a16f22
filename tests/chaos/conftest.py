"""Faults are made in a real cluster, and what they did becomes the table of docs/faults.md."""

from __future__ import annotations

import os

import pytest
from faults import TABLE, write_page
from shared_cluster import submit

__all__ = ["submit"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("CHAOS_PAGE") and TABLE:
        write_page()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, runs in TABLE.items():
        for run in runs:
            terminalreporter.line(f"{name}  {run}")
