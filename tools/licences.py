"""List the licences of the Python packages in a bill of materials, and fail on one that nobody has looked at yet.

Debian's packages are not checked: Debian's main archive has free software only, see /usr/share/doc/*/copyright.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

# Licences that allow use beside this collection and distribution of an image. Names are those of SPDX, of PyPI's
# classifiers, or what packages state instead.
ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "PSF-2.0", "Unlicense"),
    *("GPL-3.0-or-later", "MPL-2.0", "Zlib"),
}
SAME = {
    "Apache License 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# Packages whose metadata are vague, and what their own files say.
REVIEWED: dict[str, str] = {}


def licence(component: Mapping[str, Any]) -> str:
    """The licences as one expression; several classifiers are all required, as nothing says that one may choose."""
    if reviewed := REVIEWED.get(component["name"]):
        return reviewed
    stated = [entry.get("expression") or entry["license"]["name"] for entry in component.get("licenses", ())]
    return " AND ".join(SAME.get(text, text) for text in stated)


def allowed(expression: str) -> bool:
    """Whether all parts of an expression are allowed; of alternatives, one is enough."""
    parts = re.split(r" AND ", expression.replace("(", "").replace(")", ""))
    return all(any(choice.strip() in ALLOWED for choice in part.split(" OR ")) for part in parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the packages of each licence")
    args = parser.parse_args()
    packages: dict[str, list[str]] = defaultdict(list)
    for component in json.load(sys.stdin)["components"]:
        if component.get("purl", "").startswith("pkg:pypi/"):
            packages[licence(component)].append(component["name"])
    if args.list:
        for expression, names in sorted(packages.items()):
            print(f"{expression or 'unknown'}: {', '.join(sorted(names))}")
    for expression, names in sorted(packages.items()):
        if not allowed(expression):
            print(f"licence not reviewed: {expression or 'unknown'}: {', '.join(sorted(names))}", file=sys.stderr)
    return 0 if all(allowed(expression) for expression in packages) else 1


if __name__ == "__main__":
    sys.exit(main())
