# SPDX-License-Identifier: GPL-3.0-or-later
"""argus all_reduce: for preflight, an all-reduce over the workers of the running cluster."""

from __future__ import annotations

from typing import Any

import click

from ..fabric.all_reduce import all_reduce
from .request import Request, common, request_from, write_answer


class AllReduceRequest(Request):
    """The options of `all_reduce`, which changes nothing.

    workers: the names of all of them. floor: the bus bandwidth in GB/s below which workers are slow; with 0, they are
    only compared with each other.
    """

    workers: list[str]
    floor: float = 0.0
    check: bool = False


@click.command(name="all_reduce", hidden=True)
@common
def all_reduce_command(as_json: bool, **options: Any) -> None:
    """Measure an all-reduce over all workers, and name the one that fails or is slow, as preflight does."""
    request = request_from(AllReduceRequest, as_json, **options)
    write_answer(all_reduce(request.floor, request.workers))
