#!/usr/bin/env python3
"""Write the generated tables of the documentation, between their markers; with --check only compare.

docs/jobspec.md          keys of a JobSpec, from argus/jobspec/spec.py
docs/preflight.md        checks, from preflight/checks.py
docs/ports.md            Ray's ports, from cluster/ports.py
roles/*/README.md        entry points and variables, from meta/argument_specs.yml
roles/staging/README.md  also the options of items, from argus/staging/items.py

A marker names its table:

    <!-- begin generated: variables -->
    <!-- end generated -->
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.argus.verl.plugins.module_utils.cluster.ports import (
    HEAD_USES,
    NODE_PORTS,
    NODE_USES,
    WORKERS_OFFSET,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import CHECKS, DEEP
from jobspec_schema import jobspec_options
from staged_items import VARIABLES as ITEM_MODELS
from staged_items import item_options

REPO = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?P<begin><!-- begin generated: (?P<name>[^>]+?) -->\n).*?(?P<end><!-- end generated -->)", re.DOTALL
)
# Ansible's markup: C(code), V(value), O(option), RV(returned), E(variable), M(module), I(italic), B(bold), U(link).
MARKUP = re.compile(r"\b(C|V|O|RV|E|M|I|B|U)\(((?:[^()]|\([^()]*\))*)\)")
# By name, the options of a module or role as in an argument spec.
Options = Mapping[str, Mapping[str, Any]]


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, without the columns that are empty in all rows."""
    kept = [number for number in range(len(titles)) if any(row[number] for row in rows)]
    lines = [[titles[number] for number in kept], ["---"] * len(kept)]
    lines += [[row[number].replace("|", "\\|") for number in kept] for row in rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def default_cell(option: Mapping[str, Any]) -> str:
    if option.get("required"):
        return "required"
    if "default" not in option:
        return "not set"
    if isinstance(option["default"], str):
        return f"`{option['default']}`" if option["default"] else '`""`'
    flow = yaml.safe_dump(option["default"], default_flow_style=True, width=10_000, sort_keys=False)
    flow = flow.removesuffix("...\n").strip()
    return f"`{flow}`"


def type_cell(option: Mapping[str, Any]) -> str:
    elements = f" of {option['elements']}" if option.get("elements", "raw") != "raw" else ""
    return f"{option.get('type', 'str')}{elements}"


def description_cell(option: Mapping[str, Any]) -> str:
    text = to_markdown(option["description"])
    choices = [f"`{choice}`" for choice in option.get("choices", ())]
    if not all(choice in text for choice in choices):
        text += f" Choices: {', '.join(choices)}."
    return text


def to_markdown(description: str | list[str]) -> str:
    """A description with Ansible's markup as Markdown."""
    text = " ".join([description] if isinstance(description, str) else description)
    # The module job has the keys of a JobSpec below its option jobspec.
    return MARKUP.sub(lambda match: f"`{match[2].removeprefix('jobspec.')}`", text)


def options_table(title: str, options: Options) -> str:
    rows = [(f"`{key}`", type_cell(spec), default_cell(spec), description_cell(spec)) for key, spec in options.items()]
    return markdown_table((title, "Type", "Default", "Description"), rows)


def entry_points_table(specs: Mapping[str, Any]) -> str:
    rows = [(f"`{name}`", spec["short_description"]) for name, spec in specs.items()]
    return markdown_table(("Entry point", "Description"), rows)


def variables_table(specs: Mapping[str, Any]) -> str:
    """The variables of all entry points of a role, without their types, which ansible-doc shows."""
    options = {name: about for spec in specs.values() for name, about in spec["options"].items()}
    rows = [(f"`{name}`", default_cell(option), description_cell(option)) for name, option in options.items()]
    return markdown_table(("Variable", "Default", "Description"), rows)


def role_tables(specs: Mapping[str, Any]) -> dict[str, str]:
    return {"entry points": entry_points_table(specs), "variables": variables_table(specs)}


def dotted_keys(options: Options, with_mappings: bool, prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """All options by their dotted keys. with_mappings: whether a mapping itself is listed before the keys in it."""
    for name, option in options.items():
        if with_mappings or "suboptions" not in option:
            yield f"{prefix}{name}", option
        yield from dotted_keys(option.get("suboptions", {}), with_mappings, f"{prefix}{name}.")


def item_tables() -> dict[str, str]:
    return {
        f"items of {name}": options_table("Key", dict(dotted_keys(item_options(model), with_mappings=True)))
        for name, model in ITEM_MODELS.items()
    }


def jobspec_tables() -> dict[str, str]:
    return {"keys": options_table("Key", dict(dotted_keys(jobspec_options(), with_mappings=False)))}


def preflight_tables() -> dict[str, str]:
    rows = []
    for key, check in sorted(CHECKS.items()):
        # The severity and the tier, if they are not the usual ones.
        marks = [mark for mark in (check.severity, check.tier) if mark in ("warning", DEEP)]
        rows.append((f"`{key}`", check.about + (f" ({', '.join(marks)})" if marks else "")))
    return {"checks": markdown_table(("Key", "Expected"), rows)}


def port_tables() -> dict[str, str]:
    titles = ("Port", "Node", "What listens", "Who connects", "Set by")
    rows = [
        (f"+ {use.offset}", node, use.name, use.clients, f"`{name}`" if (name := use.option or use.variable) else "-")
        for node, uses in (("head", HEAD_USES), ("every node", NODE_USES))
        for use in uses
    ]
    workers = f"+ {WORKERS_OFFSET} to {NODE_PORTS - 1}"
    options = "`--min-worker-port`, `--max-worker-port`"
    rows.append((workers, "every node", "worker processes and drivers", "all nodes", options))
    return {"ports": markdown_table(titles, rows)}


def fill_tables(text: str, tables: Mapping[str, str]) -> str:
    return BLOCK.sub(lambda match: f"{match['begin']}{tables[match['name']]}{match['end']}", text)


def pages_with_tables() -> Iterator[tuple[Path, dict[str, str]]]:
    """Each page, and the tables that it may contain, by the names in their markers."""
    yield REPO / "docs" / "jobspec.md", jobspec_tables()
    yield REPO / "docs" / "preflight.md", preflight_tables()
    yield REPO / "docs" / "ports.md", port_tables()
    for specs in sorted(REPO.glob("roles/*/meta/argument_specs.yml")):
        loaded = yaml.safe_load(specs.read_text(encoding="utf-8"))
        # Only the page of staging has markers for items.
        yield specs.parents[1] / "README.md", {**role_tables(loaded["argument_specs"]), **item_tables()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is not current")
    only_check = parser.parse_args().check
    stale = []
    for page, tables in pages_with_tables():
        before = page.read_text(encoding="utf-8")
        after = fill_tables(before, tables)
        if after != before:
            stale.append(str(page.relative_to(REPO)))
            if not only_check:
                page.write_text(after, encoding="utf-8")
    for name in stale:
        sys.stdout.write(f"{name}: {'is not current; run make generate' if only_check else 'written'}\n")
    return int(only_check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
