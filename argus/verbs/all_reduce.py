# SPDX-License-Identifier: Apache-2.0
"""argus all_reduce: measures an all-reduce over the workers of the running cluster, for preflight."""

from __future__ import annotations

from typing import Any

import click

from ..fabric.all_reduce import all_reduce
from .request import VerbRequest, common_options, request_from, write_answer


class AllReduceRequest(VerbRequest):
    """The options of `all_reduce`."""

    # The names of all workers of the cluster.
    workers: list[str]
    # All modules send it; this verb never changes anything.
    check: bool = False


@click.command(name="all_reduce", hidden=True)
@common_options
def all_reduce_command(as_json: bool, **options: Any) -> None:
    """Measure an all-reduce over all workers, and name the one that fails or is slow, as preflight does."""
    request = request_from(AllReduceRequest, as_json, **options)
    write_answer(all_reduce(request.workers))
