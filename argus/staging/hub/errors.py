# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Errors of the hub and its library: which of them are transient, and what to do about the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...common.text import one_line
from ..errors import StagingError
from .location import Location

# The library's message for a file that has another size than the hub announced.
CONSISTENCY = "Consistency check failed"
TRANSIENT = (408, 429, 500, 502, 503, 504)
# So many characters of a message are shown.
SHOWN_CHARACTERS = 300


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, and the errors that led to it."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def status_of(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def is_transient(error: BaseException) -> bool:
    """Whether another try may succeed."""
    for each in causes(error):
        status = status_of(each)
        if status is not None:
            return status in TRANSIENT
        # httpx has TransportError as their base class; requests, which the library used before 1.0, has three.
        names = {kind.__name__ for kind in type(each).__mro__}
        if names & {"TransportError", "ConnectionError", "Timeout", "TimeoutError", "ChunkedEncodingError"}:
            return "OfflineModeIsEnabled" not in names
        if CONSISTENCY in str(each):
            return True
    return False


def is_file_system_error(error: BaseException) -> bool:
    """Whether it is an error of the operating system, such as a full disk, but not of a socket."""
    return (
        isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError | TimeoutError)
    )


def without_token(text: str, token: str | None) -> str:
    """The text of another program without the token."""
    # A token from a file may end with a newline, which the text does not have.
    secret = (token or "").strip()
    return text.replace(secret, "…") if secret else text


def describe(error: BaseException) -> str:
    text = one_line(error, SHOWN_CHARACTERS)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def explain(error: BaseException, location: Location, library: Any) -> StagingError:
    """What went wrong, and what to do about it; never with the token in it."""
    chain = list(causes(error))
    known = _repository_error(chain, location, library.errors)
    if known is not None:
        return known
    status = next(filter(None, map(status_of, chain)), None)
    if status is not None:
        return _status_error(status, chain, location)
    # The innermost error has the cause; the library's own errors only tell that something failed.
    text = describe(next(filter(is_transient, reversed(chain)), error))
    text = without_token(text, location.token)
    if CONSISTENCY in text:
        return hash_mismatch(location, text)
    return StagingError(
        location.where,
        f"cannot be downloaded: {text}.",
        "Check that this node can reach it, perhaps through a proxy; set a mirror (staging_hf_endpoint, or HF_ENDPOINT "
        "on the node), or give a directory as source. What was downloaded is kept.",
    )


def hash_mismatch(location: Location, what: str) -> StagingError:
    todo = "Run it again later; if that does not help, set another endpoint, or give a directory as source."
    return StagingError(location.where, f"sent content that does not match its size or hash: {what}.", todo)


def _token_hint(location: Location) -> str:
    return "the token (staging_hf_token)" if location.token else "a token (staging_hf_token)"


def _repository_error(chain: Sequence[BaseException], location: Location, errors: Any) -> StagingError | None:
    def is_a(kind: type[BaseException]) -> bool:
        return any(isinstance(each, kind) for each in chain)

    # First, because the library's class for a gated repository is a subclass of the one for a missing repository.
    if is_a(errors.GatedRepoError):
        path = location.name if location.kind == "model" else f"{location.kind}s/{location.name}"
        todo = f"Accept its license on {location.endpoint}/{path}, and set {_token_hint(location)} of that account."
        return StagingError(location.where, "is gated, and access is denied.", todo)
    if is_a(errors.RepositoryNotFoundError):
        todo = f"Correct its name; if it is private, set {_token_hint(location)} of an account that may read it."
        return StagingError(location.where, "does not exist or is private.", todo)
    if is_a(errors.RevisionNotFoundError):
        todo = "Give a branch, a tag, or a commit with all its 40 digits."
        return StagingError(location.where, f"has no revision {location.revision}.", todo)
    return None


def _status_error(status: int, chain: Sequence[BaseException], location: Location) -> StagingError:
    if status in (401, 403):
        what = "does not accept the token" if location.token else "requires a token"
        todo = f"Set {_token_hint(location)} of an account that may read it."
        return StagingError(location.where, f"{what} ({status}).", todo)
    message = next(filter(None, (getattr(each, "server_message", "") for each in chain)), "no reason")
    text = without_token(one_line(message, SHOWN_CHARACTERS), location.token)
    todo = "Run it again later: what was downloaded is kept."
    return StagingError(location.where, f"answered with status {status} ({text}).", todo)
