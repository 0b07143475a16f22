"""Check the licences of the Python packages in a CycloneDX SBOM on standard input; fail on one that was not reviewed.

Debian's packages are not checked: Debian's main archive has free software only, see /usr/share/doc/*/copyright.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

# Licences under which a package may be used with this collection and distributed in an image, by their names in SPDX.
# BSD is for packages that do not say which BSD licence they have.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0",
    "CC0-1.0", "GPL-3.0-or-later", "ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "PSF-2.0", "Zlib",
}  # fmt: skip
# SPDX's names of what packages state.
SPDX_ALIASES = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# Packages with other licences that a person has read and accepted. A changed licence is reported again.
REVIEWED = {
    # All that is imported is in the public domain or BSD-2-Clause; an Emacs mode has the GPL. Tests only.
    ("docutils", "BSD AND GNU General Public License (GPL) AND Public Domain"),
    # Apache-2.0 by its file LICENSE. vLLM uses it.
    ("openai-harmony", "unknown"),
    # Unchanged, imported by mistral_common, which vLLM uses; the collection does not.
    ("pycountry", "LGPL-2.1-only"),
    # Python 1.6's licence, for code from Python's re module. transformers uses it; the collection does not.
    ("regex", "Apache-2.0 AND CNRI-Python"),
    # LGPL-2.1, in the reports of cosmic-ray. Tests only.
    ("yattag", "GNU Library or Lesser General Public License (LGPL)"),
}


def licence_expression(component: Mapping[str, Any]) -> str:
    """The licences as one SPDX expression. Of several classifiers, all count: nothing says that one may choose."""
    stated = [entry.get("expression") or entry["license"]["name"] for entry in component.get("licenses", ())]
    return " AND ".join(SPDX_ALIASES.get(text, text) for text in stated) or "unknown"


def is_allowed(name: str, expression: str) -> bool:
    """Whether the package was reviewed, or each part joined by AND is allowed, and one of those joined by OR."""
    if (name, expression) in REVIEWED:
        return True
    # Parentheses are dropped, and OR binds more closely than AND: this can only refuse more expressions.
    parts = expression.replace("(", "").replace(")", "").split(" AND ")
    return all(any(choice.strip() in ALLOWED for choice in part.split(" OR ")) for part in parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the packages of each licence")
    args = parser.parse_args()
    components = json.load(sys.stdin)["components"]
    python_components = [component for component in components if component.get("purl", "").startswith("pkg:pypi/")]
    if not python_components:
        print("tools/licences.py: the bill of materials on standard input has no Python packages", file=sys.stderr)
        return 1
    packages: dict[str, list[str]] = defaultdict(list)
    for component in python_components:
        packages[licence_expression(component)].append(component["name"])
    refused = 0
    for expression, names in sorted(packages.items()):
        if args.list:
            print(f"{expression}: {', '.join(sorted(names))}")
        for name in (name for name in sorted(names) if not is_allowed(name, expression)):
            refused += 1
            print(
                f"{name}: the licence {expression} is not in tools/licences.py. "
                "Read it; add it to ALLOWED or REVIEWED, or remove the package",
                file=sys.stderr,
            )
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
