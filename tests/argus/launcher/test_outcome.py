"""How an attempt ended, from what its launcher observed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs import CUDA, planned

from argus.archive import failures
from argus.archive.failures import FailureKind
from argus.launcher.outcome import Observations, Outcome, determine_outcome, trusted_advice
from argus.launcher.watch import ENDED_BY_WATCH

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has no more\n"
CONFIG = "Error executing job with overrides: []\nCould not override 'trainer.x'.\n"
LOST = failures.failure("node_lost", "node w1 was lost")
STALLED = failures.failure("stalled", "no step and no log line for 61 s, at step 0")
ENGINE = failures.failure("engine_lost", "an inference engine ended")
DEADLINE = failures.failure("deadline", "the job exceeded its deadline of 9 s")


def shown(result: Outcome) -> tuple[str, str]:
    return result.state, result.failure.kind if result.failure else ""


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (Observations(exit_code=0, last_step=4, attempt_steps=2, total_steps=4), ""),
        (Observations(exit_code=0, last_step=2, attempt_steps=2, total_steps=7), "the data ended at step 2 of 7"),
        (Observations(exit_code=0, total_steps=7, overrides=("trainer.val_only=True",)), ""),
        # It resumed at the last step.
        (Observations(exit_code=0, last_step=16, attempt_steps=0, total_steps=16), ""),
    ],
)
def test_a_success(seen: Observations, reason: str) -> None:
    assert determine_outcome(seen) == Outcome("SUCCEEDED", None, reason)


@pytest.mark.parametrize(("steps", "total"), [(0, None), (0, 16), (6, 16), (6, None)])
def test_a_trainer_that_did_nothing_has_failed(steps: int, total: int | None) -> None:
    result = determine_outcome(Observations(exit_code=0, last_step=steps, attempt_steps=0, total_steps=total))
    assert shown(result) == ("FAILED", "data")


ACTOR, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
SIZE, TOKENS = f"{ACTOR}.ppo_micro_batch_size_per_gpu", f"{ACTOR}.ppo_max_token_len_per_gpu"
CHECKPOINTING = f"{MODEL}.enable_gradient_checkpointing"
OFFLOAD = f"{ACTOR}.fsdp_config.optimizer_offload=True"
# The job, and what the advice names and does not name.
LEVERS: list[tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = [
    ({}, (TOKENS, OFFLOAD), (SIZE, CHECKPOINTING)),
    ({"trainer_overrides": {SIZE: 4}}, (SIZE, OFFLOAD), (TOKENS,)),
    ({"trainer_overrides": {CHECKPOINTING: False}}, (f"{CHECKPOINTING}=True",), ()),
    ({"trainer_overrides": {f"{ACTOR}.fsdp_config.optimizer_offload": True}}, (TOKENS,), (OFFLOAD,)),
    ({"trainer_overrides": ["--config-name=ppo_megatron_trainer"]}, (f"{ACTOR}.megatron.param_offload",), (OFFLOAD,)),
    ({"workload": "sft"}, ("data.max_token_len_per_gpu", "engine.param_offload=True"), ("rollout", "micro_batch")),
]


@pytest.mark.parametrize(("changes", "named", "unnamed"), LEVERS, ids=str)
def test_advice_for_a_full_gpu_works_with_the_settings_of_the_job(
    changes: dict[str, Any], named: tuple[str, ...], unnamed: tuple[str, ...]
) -> None:
    result = determine_outcome(Observations(exit_code=1, log=OOM, overrides=planned(CUDA, **changes).plan.overrides))
    assert result.failure
    assert [key for key in named if key not in result.failure.todo] == []
    assert [key for key in unnamed if key in result.failure.todo] == []


def test_only_what_a_lost_node_may_cause_is_left_to_the_steward() -> None:
    gloo = "Error executing job with overrides: []\nRuntimeError: [/x.cc:5] Connection closed by peer [10.0.0.2]:9\n"
    for exit_code, log, kind in ((3, "", "unknown"), (-9, "", "killed"), (1, gloo, "communication")):
        assert shown(determine_outcome(Observations(exit_code=exit_code, log=log))) == ("ENDING", kind)
    assert shown(determine_outcome(Observations(exit_code=1, log=CONFIG))) == ("FAILED", "config")


@pytest.mark.parametrize(("has_space", "kind"), [(False, "disk_full"), (True, "storage")])
def test_a_checkpoint_that_could_not_be_written(has_space: bool, kind: str) -> None:
    log = (Path(__file__).with_name("logs") / "disk_full-checkpoint.log").read_text()
    failure = determine_outcome(Observations(exit_code=1, log=log, has_space_for_checkpoint=has_space)).failure
    assert failure and failure.kind == kind
    assert failure.todo == failures.REMEDIES[failure.kind]


def test_a_process_that_was_killed_for_lack_of_memory() -> None:
    failure = determine_outcome(Observations(exit_code=-9, oom_kills=2)).failure
    assert failure and failure.kind == "killed"
    assert "for lack of memory" in failure.reason
    assert failure.todo == failures.REMEDIES[FailureKind.HOST_OOM]
    # What ended the job is not a signal.
    other = determine_outcome(Observations(exit_code=1, log=CONFIG, oom_kills=2, failed_forks=2)).failure
    assert other and "memory" not in other.reason


@pytest.mark.parametrize("exit_code", [-9, 1])
def test_a_limit_of_processes_that_the_log_does_not_show(exit_code: int) -> None:
    failure = determine_outcome(Observations(exit_code=exit_code, failed_forks=3)).failure
    assert failure and failure.kind == "limit" and "nproc" in trusted_advice(failure)


def test_a_signal_from_the_steward_is_a_failure_with_its_cause() -> None:
    assert determine_outcome(Observations(exit_code=-15, stop_signal=15, stop_cause=LOST)) == Outcome("FAILED", LOST)
    # The cause alone has ended nothing.
    assert shown(determine_outcome(Observations(exit_code=0, attempt_steps=1, stop_cause=LOST))) == ("SUCCEEDED", "")


def test_a_stall_after_a_known_cause_is_a_failure_of_that_kind() -> None:
    assert shown(determine_outcome(Observations(-15, watch_failure=STALLED, log=OOM))) == ("FAILED", "gpu_oom")
    # A configuration error cannot be the cause, and a deadline has none.
    assert determine_outcome(Observations(exit_code=-15, watch_failure=STALLED, log=CONFIG)).failure == STALLED
    assert determine_outcome(Observations(exit_code=-15, watch_failure=DEADLINE, log=OOM)).failure == DEADLINE


def test_a_lost_engine_may_have_a_cause_in_its_own_lines_or_be_that_of_a_lost_node() -> None:
    server = "(vLLMHttpServer pid=5) ERROR 12-01 23:08:02 [core.py:5] "
    seen = Observations(exit_code=-15, watch_failure=ENGINE, log=f"(WorkerDict pid=6) x\n{server}its line\n")
    assert determine_outcome(seen) == Outcome("ENDING", replace(ENGINE, lines=("(vLLMHttpServer pid=5) its line",)))
    assert shown(determine_outcome(replace(seen, log=server + OOM))) == ("FAILED", "gpu_oom")
    missing = f"{server}  File \"/a.py\", line 1, in load\n{server}ModuleNotFoundError: No module named 'flash_attn'\n"
    assert shown(determine_outcome(replace(seen, log=missing))) == ("FAILED", "import")
    # Neither what another process printed, nor what the engine survived long before.
    elsewhere = [missing.replace("vLLMHttpServer", "WorkerDict"), missing + f"{server}x\n" * 200]
    assert all(shown(determine_outcome(replace(seen, log=log))) == ("ENDING", "engine_lost") for log in elsewhere)


def test_what_the_trainer_prints_while_it_is_ended_is_no_cause_of_a_stall() -> None:
    log = f"step:1\n{ENDED_BY_WATCH} no step\n{OOM}"
    assert determine_outcome(Observations(exit_code=-15, watch_failure=STALLED, log=log)).failure == STALLED


DEAD_ENGINE = """Error executing job with overrides: []
Traceback (most recent call last):
  File "/x.py", line 1, in run
vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.
"""


@pytest.mark.parametrize(
    ("error", "kind", "refused"),
    [
        ("InvalidCxxCompiler", "engine_lost", 0),
        ("InvalidCxxCompiler", "limit", 2),
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0", "gpu_oom", 0),
    ],
)
def test_what_an_engine_said_may_be_far_above_the_end_of_the_log(error: str, kind: str, refused: int) -> None:
    engine = f"RuntimeError: Worker failed with error '{error}' (vLLMHttpServer pid=1)"
    failure = determine_outcome(Observations(1, log=DEAD_ENGINE, engine_failure=engine, failed_forks=refused)).failure
    assert failure and failure.kind == kind and ("InvalidCxx" in failure.reason) == ("InvalidCxx" in error)
