# SPDX-License-Identifier: Apache-2.0
"""Starts a verb as ``argus VERB``, a job's launcher as ``argus launch``, or the steward as ``argus steward``."""

from __future__ import annotations

import sys


def start() -> None:
    """Import only what is needed: the launcher needs no packages, and so starts in half of the time."""
    if sys.argv[1:2] == ["launch"]:
        from .launcher.commands import main

        sys.exit(main(sys.argv[2:]))
    if sys.argv[1:] == ["steward"]:
        from .steward.cluster import main as steward

        steward()
    from .cli import run

    run()


if __name__ == "__main__":
    start()
