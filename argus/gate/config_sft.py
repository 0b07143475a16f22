# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of SFT. Each was read in verl 0.9.1 and names its source, a file and a function below verl/."""

from __future__ import annotations

from ..common.findings import WARNING, about
from .settings import FSDP, Found, JobConfig, indivisible, multiple_of, sequence_parallel

SEQUENCE = "engine.ulysses_sequence_parallel_size"


def batches(job: JobConfig) -> Found:
    if job.get("engine.strategy") not in (*FSDP, None):
        return
    yield from sequence_parallel(job, SEQUENCE, "model.use_remove_padding")
    # workers/engine/fsdp/transformer_impl.py:prepare_model_inputs
    pad_mode = job.get("data.pad_mode")
    if pad_mode not in ("no_padding", None):
        yield about("data.pad_mode", f"is {pad_mode}, but the FSDP engine supports no_padding only", "remove it")
    # utils/seqlen_balancing.py:get_seqlen_balanced_partitions, which sft_trainer_ray.py:fit calls with equal_size
    batch, ranks = job.number("data.train_batch_size"), max(job.gpus // max(job.number(SEQUENCE, 1), 1), 1)
    if indivisible(batch, ranks):
        what = f"is {batch}, not a multiple of the {ranks} ranks that share it"
        yield about("data.train_batch_size", what, multiple_of(ranks))
        return
    # workers/engine/utils.py:prepare_micro_batches
    micro = job.number("data.micro_batch_size_per_gpu")
    if job.get("data.use_dynamic_bsz") is False and indivisible(batch // ranks, micro):
        what = f"is {micro}, which does not divide the {batch // ranks} samples of a rank"
        todo = "set it to a divisor, or set data.use_dynamic_bsz=True"
        yield about("data.micro_batch_size_per_gpu", what, todo)


def lengths(job: JobConfig) -> Found:
    # utils/seqlen_balancing.py:rearrange_micro_batches
    tokens = job.number("data.max_token_len_per_gpu") * job.number(SEQUENCE, 1)
    longest = job.number("data.max_length")
    if job.get("data.use_dynamic_bsz") and 0 < tokens < longest:
        what = f"allows {tokens} tokens, but data.max_length is {longest}: a sample of that length ends the job"
        yield about("data.max_token_len_per_gpu", what, f"set it to {longest} or more", WARNING)


def validation(job: JobConfig) -> Found:
    # trainer/sft_trainer_ray.py:fit iterates over val_dataloader, which is None without data.
    every = job.number("trainer.test_freq")
    if every > 0 and not job.get("data.val_files"):
        what = f"is {every}, but the job has no data for validation: it would end with TypeError after step {every}"
        yield about("trainer.test_freq", what, "set trainer.test_freq=-1, or stage a val.parquet")


SFT_RULES = (batches, lengths, validation)
