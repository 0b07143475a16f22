# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loads huggingface_hub with the settings that staging needs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ..addresses import is_loopback
from ..errors import StagingError
from .location import unencrypted

# The timeout for an answer: a mistake in the address shall be reported soon.
ANSWER_SECONDS = 30.0


def load_library(cache: Path) -> Any:
    """huggingface_hub; it reads its environment variables when it is imported."""
    os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_TELEMETRY="1")
    os.environ.setdefault("HF_HOME", str(cache.parent))
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        todo = "Run this inside a node, whose image has it."
        raise StagingError("huggingface_hub", f"cannot be imported ({error}).", todo) from error
    huggingface_hub.logging.set_verbosity_error()
    if hasattr(huggingface_hub, "set_client_factory"):
        # Since 1.0. Its own client has no timeout for some requests, such as the one for Xet's token.
        import httpx

        hooks = huggingface_hub.get_session().event_hooks
        # They are the same ones after the first call.
        others = [hook for hook in hooks.get("request", ()) if hook is not refuse_unencrypted_token]
        own: dict[str, Any] = {
            "event_hooks": {**hooks, "request": [*others, refuse_unencrypted_token]},
            "follow_redirects": True,
        }
        huggingface_hub.set_client_factory(lambda: httpx.Client(**own, timeout=ANSWER_SECONDS))
    return huggingface_hub


def refuse_unencrypted_token(request: Any) -> None:
    """Raises an error if a request, perhaps one that follows a redirect, would send a token without encryption.

    httpx sends no token to another host, but the library itself sends one where the answer of the hub points, and
    compares only the names of the hosts.
    """
    url = request.url
    if "authorization" in request.headers and url.scheme != "https" and not is_loopback(url.host):
        raise unencrypted(f"{url.scheme}://{url.netloc.decode(errors='replace')}")
