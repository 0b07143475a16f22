"""A real cluster of three containers, and jobs submitted as a user submits them."""

from __future__ import annotations

import pytest
from acceptance import LINES
from shared_cluster import submit

__all__ = ["submit"]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """`make acceptance` asks for the whole list: it fails for a line that no test has seen."""
    if session.config.option.markexpr == "acceptance" and not all(line.seen for line in LINES.values()):
        session.exitstatus = exitstatus or pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.option.markexpr == "acceptance":
        terminalreporter.section("acceptance")
        for number, line in LINES.items():
            terminalreporter.line(f"{number}  {line.expected}")
            for fact in line.seen or ["NOT SEEN"]:
                terminalreporter.line(f"     {fact}")
