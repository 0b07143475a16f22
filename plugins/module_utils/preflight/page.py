# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of preflight as one HTML page: no scripts, nothing from elsewhere, light and dark, printable."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..argus.common.findings import SEVERITIES
from ..argus.common.text import printable
from .all_checks import all_checks
from .judgement import Judged, grouped

STYLE = """
:root { color-scheme: light dark; --text: #1d2125; --back: #fff; --line: #d5d9dd; --quiet: #626a72; --head: #f2f4f6;
  --error: #b3261e; --warning: #8a5300; --note: #2f5d8a; --ok: #2c6e3a; }
@media (prefers-color-scheme: dark) { :root { --text: #e3e6e8; --back: #16181a; --line: #3a3f44; --quiet: #9aa2a9;
  --head: #222528; --error: #ff8a80; --warning: #f0b45c; --note: #8db9e6; --ok: #7fc98f; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 2rem auto;
  max-width: 75rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p { margin: .3rem 0; } .quiet { color: var(--quiet); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; } th, td { border: 1px solid var(--line); padding: .3rem .6rem; text-align: left;
  vertical-align: top; } th { background: var(--head); font-weight: 600; }
tbody th { font-weight: 400; white-space: nowrap; }
.error { color: var(--error); font-weight: 600; } .warning { color: var(--warning); font-weight: 600; }
.note { color: var(--note); } .ok { color: var(--ok); }
code { font-size: .9em; }
@media print { body { margin: 0; max-width: none; font-size: 10pt; } .scroll { overflow: visible; }
  tr { break-inside: avoid; } }
"""
# Also for those who do not see the colours.
SIGNS = {"error": "error", "warning": "warning", "note": "note", "ok": "ok", "": "-"}


def page(result: Judged, title: str, when: str) -> str:
    counts = ", ".join(_count(result, severity) for severity in SEVERITIES)
    body = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="quiet">{_text(when)} · tier {_text(result.tier.value)} · {len(result.hosts)} machines</p>',
        f"<p>{counts}</p>",
        "<h2>Findings</h2>",
        _findings(result) if result.findings else "<p>None.</p>",
        "<h2>Hardware</h2>",
        _hardware(result),
        "<h2>Checks</h2>",
        '<p class="quiet">"ok" means that nothing was found, also where a machine has no such hardware.</p>',
        _matrix(result),
    ]
    for section in result.sections:
        body += [f"<h2>{_text(section.title)}</h2>", _table(map(_text, section.header), _cells(section.rows))]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _text(value: object) -> str:
    return escape(printable(value, lines=False))


def _count(result: Judged, severity: str) -> str:
    count = sum(finding.severity == severity for finding in result.findings)
    return f'<span class="{severity if count else "quiet"}">{count} {severity}{"" if count == 1 else "s"}</span>'


def _findings(result: Judged) -> str:
    rows = [
        [
            f'<span class="{finding.severity}">{finding.severity}</span>',
            _text(finding.where),
            f"<code>{_text(finding.key)}</code>",
            _text(finding.what),
            _text(finding.todo),
        ]
        for finding in grouped(result.findings)
    ]
    return _table(("Severity", "Where", "Check", "What", "What to do"), rows)


def _hardware(result: Judged) -> str:
    titles = list(dict.fromkeys(title for cells in result.hardware.values() for title in cells))
    rows = [[host, *(result.hardware.get(host, {}).get(title, "") for title in titles)] for host in result.hosts]
    return _table(("Machine", *map(_text, titles)), _cells(rows))


def _matrix(result: Judged) -> str:
    """A row for each check, as there are many, with those first that found something."""
    checks = all_checks()
    shown = {key: [result.state(host, key) for host in result.hosts] for key in result.checks}
    order = (*SEVERITIES, "ok", "")
    rows = [
        [
            f"<code>{_text(key)}</code><br><span class=quiet>{_text(checks[key].about)}</span>",
            *(f'<span class="{state}">{SIGNS[state]}</span>' for state in shown[key]),
        ]
        for key in sorted(shown, key=lambda key: min(map(order.index, shown[key]), default=0))
    ]
    return _table(("Check", *map(_text, result.hosts)), rows)


def _cells(rows: Iterable[Sequence[str]]) -> Iterable[Sequence[str]]:
    return [[_text(cell) for cell in row] for row in rows]


def _table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML. The first one of a row is its header."""
    head = "".join(f"<th scope=col>{cell}</th>" for cell in header)
    lines = [
        f"<tr><th scope=row>{row[0]}</th>" + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>" for row in rows
    ]
    return (
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n'
        + "\n".join(lines)
        + "\n</tbody>\n</table></div>"
    )
