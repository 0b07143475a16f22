# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories of HuggingFace's hub, in the hub's own cache: fetched by its library, checked against its promises.

The library knows the protocol: redirects, retries, Xet, resuming after a broken connection. What it does not do is done
here: it believes a file that is there, it begins anew what a killed process left unfinished, it waits for some answers
without end, and its errors do not say what to do. Read in huggingface_hub 1.33.0: file_download.py, utils/_http.py,
utils/_xet.py, utils/_cache_manager.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

# How the library says that a file has another size than the hub said.
CONSISTENCY = "Consistency check failed"
PASSING = (408, 429, 500, 502, 503, 504)


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and what led to it."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def status_of(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def may_pass(error: BaseException) -> bool:
    """Whether the same may go well in a moment."""
    for each in causes(error):
        status = status_of(each)
        if status is not None:
            return status in PASSING
        # httpx has TransportError above all of them; requests, which the library used before 1.0, has three.
        names = {kind.__name__ for kind in type(each).__mro__}
        if names & {"TransportError", "ConnectionError", "Timeout", "TimeoutError", "ChunkedEncodingError"}:
            return "OfflineModeIsEnabled" not in names
        if CONSISTENCY in str(each):
            return True
    return False


def is_of_the_file_system(error: BaseException) -> bool:
    """No room, no permission: of the operating system, but not of a socket."""
    return (
        isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError | TimeoutError)
    )


def without_secrets(text: str, token: str | None, endpoint: str | None) -> str:
    """A text of others without the token, and without who is who to the endpoint."""
    for secret in (token or "", urlsplit(endpoint or "").netloc.rpartition("@")[0]):
        # Of a file, it may end with a new line that is not said.
        text = text.replace(secret.strip(), "…") if secret.strip() else text
    return text


def one_line(error: BaseException) -> str:
    text = shortened(str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shortened(text: str) -> str:
    return " ".join(text.split()).rstrip(".")[:300]
