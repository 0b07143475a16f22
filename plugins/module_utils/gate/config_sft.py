# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What verl would refuse in a composed configuration only after minutes, or would take and not do.

All of it is pure, and needs no other file of the collection. Each rule was read in verl 0.9.1 and names the file and
the function, below verl/; `since` is the first release that has it too.
"""

from __future__ import annotations

from .settings import Found, Job, Problem, by, not_whole, sequence_parallel


def sft_batches(job: Job) -> Found:
    get = job.get
    sequence = get.number("engine.ulysses_sequence_parallel_size", 1)
    if get("engine.strategy") in ("fsdp", "fsdp2", None):
        yield from sequence_parallel(job, "engine.ulysses_sequence_parallel_size", "model.use_remove_padding")
        # workers/engine/fsdp/transformer_impl.py:prepare_model_inputs
        if get("data.pad_mode") not in ("no_padding", None):
            what = f"is {get('data.pad_mode')}: the FSDP engine knows no_padding only"
            yield Problem("data.pad_mode", what, "leave it out")
        # utils/seqlen_balancing.py:get_seqlen_balanced_partitions, which sft_trainer_ray.py:fit calls with equal_size
        batch, ranks = get.number("data.train_batch_size"), max(job.gpus // max(sequence, 1), 1)
        if not_whole(batch, ranks):
            yield Problem(
                "data.train_batch_size", f"is {batch}, not a multiple of the {ranks} ranks that share it", by(ranks)
            )
        # workers/engine/utils.py:prepare_micro_batches
        micro = get.number("data.micro_batch_size_per_gpu")
        if get("data.use_dynamic_bsz") is False and not not_whole(batch, ranks) and not_whole(batch // ranks, micro):
            what = f"is {micro}, which does not divide the {batch // ranks} samples of a rank"
            yield Problem("data.micro_batch_size_per_gpu", what, "give a divisor, or set data.use_dynamic_bsz=True")


def sft_lengths(job: Job) -> Found:
    # utils/seqlen_balancing.py:rearrange_micro_batches
    get = job.get
    room = get.number("data.max_token_len_per_gpu") * get.number("engine.ulysses_sequence_parallel_size", 1)
    longest = get.number("data.max_length")
    if get("data.use_dynamic_bsz") and 0 < room < longest:
        what = f"gives room for {room} tokens, and data.max_length is {longest}: a sample so long ends the job"
        yield Problem("data.max_token_len_per_gpu", what, f"give {longest} or more", "warning")
