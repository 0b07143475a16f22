"""Rows for a job that has to run until something happens to it: it waits, and leaves the CPUs to others."""

from __future__ import annotations

import time
from typing import Any

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset


class SlowRows(MultiTurnSFTDataset):
    def __getitem__(self, item: int) -> Any:
        # Eight processes of verl read rows at once: a batch of 16 takes two seconds on average.
        time.sleep(1.0)
        return super().__getitem__(item)
