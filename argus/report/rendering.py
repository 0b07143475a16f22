# SPDX-License-Identifier: Apache-2.0
"""Renders templates and their tables as HTML pages: single files with scripts and styles, text from jobs escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from ..common.text import printable
from ..jobs.report import utc_text

MAX_CELL_CHARS = 500


class Table(NamedTuple):
    """A table of a page. Without rows, it is not shown."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    is_folded: bool = False


def render_template(template_name: str, scripts: Sequence[str], style: str, now: float, **values: Any) -> str:
    """The page of a template. scripts, style: the texts of this package's files; page.css is added to the style.

    The page's Content-Security-Policy blocks all other code, and everything from other hosts. Values are escaped,
    except Markup.
    """
    environment = jinja2.Environment(
        autoescape=True,
        finalize=printable_value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(read_resource),
    )
    style += read_resource("page.css")
    policy = f"default-src 'none'; script-src {' '.join(map(csp_hash, scripts))}; style-src {csp_hash(style)}; "
    return environment.get_template(template_name).render(
        policy=Markup(f"{policy}base-uri 'none'; form-action 'none'"),  # noqa: S704 - hashes
        style=Markup(style),  # noqa: S704 - not from a job
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - not from a job
        generated_at=utc_text(now),
        **values,
    )


def read_resource(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def csp_hash(code: str) -> str:
    """The expression that allows a script or a style in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def printable_value(value: Any) -> Any:
    """A value as the page shows it, before Jinja escapes it. Markup, which only this package makes, stays as it is."""
    if isinstance(value, (Markup, jinja2.Undefined)):
        return value
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else printable(value)


def cell_text(value: Any) -> str:
    """A value as one line of at most MAX_CELL_CHARS; as JSON, unless it is text."""
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), lines=False)
    return text if len(text) <= MAX_CELL_CHARS else f"{text[: MAX_CELL_CHARS - 1]}…"
