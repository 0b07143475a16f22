"""The program as nodes have it, for tests that run it."""

from __future__ import annotations

import shutil
from pathlib import Path

import argus

# As program_archive.MAIN.
MAIN = """import os, sys
sys.path[0] = os.path.realpath(sys.path[0])
from argus.__main__ import start
start()
"""


def write_program(directory: Path) -> Path:
    """A directory that Python runs as the program, with the sources of this repository and their bytecode."""
    shutil.copytree(Path(argus.__file__).parent, directory / "argus", dirs_exist_ok=True)
    (directory / "__main__.py").write_text(MAIN)
    return directory
