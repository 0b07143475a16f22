"""A job, as uid 65534, that prepares a shared root against root; and what root must not lose."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from staging_store import NOBODY

# The ways in which something stands in the place of a lock, or of any file that staging opens.
FORMS = ("link", "dangling link", "FIFO", "directory", "hard link", "socket")
SECRET = "only root may read this, and nobody may change it\n"


class Victim:
    """A directory of root with a file that nobody else can read."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700)
        self.directory, self.file = directory, directory / "secret"
        self.file.write_text(SECRET)
        self.file.chmod(0o600)
        self.before = self.state()

    def state(self) -> dict[str, tuple[int, int, int, str]]:
        """Mode, owner, links and content of all files."""
        files = {}
        for path in (self.directory, *self.directory.rglob("*")):
            stat = path.lstat()
            content = path.read_text() if path.is_file() else ""
            files[path.name] = (stat.st_mode, stat.st_uid, stat.st_gid, content)
        return files

    def require_unchanged(self) -> None:
        assert self.state() == self.before


@contextmanager
def public_directory() -> Iterator[Path]:
    """A directory that other users reach; pytest's own are only for root."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory).resolve()
        path.chmod(0o755)
        yield path


def give_to_nobody(directory: Path) -> None:
    for path in (directory, *directory.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def put_in_place(form: str, path: Path, victim: Path) -> None:
    """Puts something of this form at a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if form == "link":
        path.symlink_to(victim)
    elif form == "dangling link":
        path.symlink_to(victim.with_name("made-by-staging"))
    elif form == "FIFO":
        os.mkfifo(path)
    elif form == "directory":
        path.mkdir()
    elif form == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            here = Path.cwd()
            os.chdir(path.parent)
            server.bind(path.name)
            os.chdir(here)
    else:
        # A file of this user elsewhere on the machine; the kernel may forbid links to those of others.
        other = path.parent / "a file of the user"
        other.write_text(SECRET)
        os.link(other, path)
