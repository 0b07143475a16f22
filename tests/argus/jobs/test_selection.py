from __future__ import annotations

from collections.abc import Sequence

import pytest

from argus.archive.archive import Archive
from argus.jobs.info import JobInfo
from argus.jobs.logs import Selection, select_lines
from argus.jobs.services import OperationError

RETRIED = [
    "(run_node pid=3) (rank1 pid=7) one",
    "\x1b[36m(run_node pid=4, ip=10.0.0.2)\x1b[0m (rank11 pid=8) two",
    "[rank1]: RuntimeError: lost, [Rank 11] and [Rank 12]",
    " 50%|## ARGUS_VERL_ATTEMPT=3",
    "(run_node pid=5, ip=10.0.0.20) (rank1 pid=9) three",
    "(run_node pid=5, ip=10.0.0.20) ValueError: four",
]


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(rank="1"), [0, 2, 4]),
        (Selection(rank="11"), [1, 2]),
        (Selection(attempt=2), [0, 1, 2]),
        (Selection(attempt=3), [3, 4, 5]),
        (Selection(rank="1", attempt=2), [0, 2]),
    ],
)
def test_lines_of_a_rank_and_an_attempt(selection: Selection, chosen: Sequence[int]) -> None:
    assert selection.choose(RETRIED, 2, 0) == [RETRIED[at] for at in chosen]
    assert selection.choose(RETRIED, 2, 1) == [RETRIED[at] for at in chosen][-1:]


def test_an_attempt_chooses_lines_of_the_whole_log(archive: Archive) -> None:
    job = JobInfo("grpo-1", "RUNNING", log=("[rank1]: a", "b"))
    with pytest.raises(OperationError, match="position"):
        select_lines(archive, job, Selection(attempt=1), 0, "1:0")
    assert select_lines(archive, job, Selection(rank="1"), 0, "1:0") == ["[rank1]: a"]
