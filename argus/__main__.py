# SPDX-License-Identifier: Apache-2.0
"""Run as ``argus VERB``, beside a job as ``argus launch VERB ARCHIVE``, and beside Ray's head as ``argus steward``."""

from __future__ import annotations

import sys


def start() -> None:
    """Import what the verb needs only: the launcher gets along without packages, and starts in half of the time."""
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
