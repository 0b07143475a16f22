"""Rows for a job that has to run until something happens to it: it waits, and leaves the CPUs to others."""

from __future__ import annotations

import os
import time
from typing import Any

from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

LINE = f"{'noise ' * 170}\n"


class SlowRows(MultiTurnSFTDataset):
    def __getitem__(self, item: int) -> Any:
        # A batch has 16 rows; with eight processes of verl that read them at once, it takes two seconds on average.
        time.sleep(float(os.environ.get("SLOW_ROWS_SECONDS", "1")))
        print(end=LINE * int(os.environ.get("SLOW_ROWS_NOISE", "0")), flush=True)
        return super().__getitem__(item)
