"""What the log of a running trainer shows. The lines are those of verl 0.9.1 on a cluster."""

from __future__ import annotations

import pytest

from argus.archive.archive import Archive
from argus.archive.warning_inputs import ExceptionCount, LogSummary
from argus.launcher.log_scan import LogFollower, LogScan, Phase, ProgressScan

LOOP = "\x1b[36m(AgentLoopWorkerTQ pid=1001, ip=172.18.0.4)\x1b[0m "
OTHER = "\x1b[36m(AgentLoopWorkerTQ pid=7)\x1b[0m "
VERL = "/private/common/code/verl/verl-0.9.1/verl"
FAILED = "ERROR:2026-11-21 23:20:54,458:Error in _run_prompt for uid=faabb1a6-4a16"
REWARD = [
    FAILED,
    "Traceback (most recent call last):",
    f'  File "{VERL}/trainer/ppo/v1/agent_loop_tq.py", line 160, in _agent_loop_postprocess',
    "    await self._compute_score(outputs, kwargs=kwargs)",
    "ray.exceptions.RayTaskError(ValueError): \x1b[36mray::RewardLoopWorker.compute_score()\x1b[39m (pid=857)",
    f'  File "{VERL}/experimental/reward_loop/reward_manager/naive.py", line 75, in run_single',
    "    result = await self.loop.run_in_executor(",
    '  File "/private/user/code/raises.py", line 2, in compute_score',
    '    raise ValueError("no answer")',
    "ValueError: no answer",
]
ENGINE = [
    FAILED,
    "Traceback (most recent call last):",
    '  File "/opt/vllm/engine.py", line 9, in generate',
    "RuntimeError: the engine is dead",
]
CAUSE = "ValueError: no answer (/private/user/code/raises.py, line 2)"


def scanned(*lines: str) -> LogScan:
    scan = LogScan()
    scan.feed("".join(f"{line}\n" for line in lines).encode())
    scan.finish()
    return scan


def of(process: str, lines: list[str]) -> list[str]:
    return [process + line for line in lines]


def test_rewards_that_raise_are_counted_with_their_line() -> None:
    assert scanned(*of(LOOP, REWARD * 2), LOOP + "more").summary == LogSummary(
        reward_exceptions=ExceptionCount(2, CAUSE)
    )
    dead = ExceptionCount(1, "RuntimeError: the engine is dead (/opt/vllm/engine.py, line 9)")
    assert scanned(*of(LOOP, ENGINE)).summary == LogSummary(rollout_exceptions=dead)
    # Lines that Ray repeats count.
    repeated = f"{OTHER}{FAILED} [repeated 5x across cluster]"
    assert scanned(*of(LOOP, REWARD), repeated).summary == LogSummary(reward_exceptions=ExceptionCount(6, CAUSE))
    cut = "Prompt of 70 tokens exceeds rollout.prompt_length=64; left-truncating."
    lines = [f"{LOOP}WARNING:2026:{cut}", f"{LOOP}{cut.replace('70', '68')} [repeated 9x across cluster]"]
    assert scanned(*lines).summary == LogSummary(cut_prompt_count=10, longest_cut_prompt_tokens=70)


def test_a_log_in_any_pieces_shows_the_same() -> None:
    # The tracebacks of two processes are interleaved.
    pairs = [line for pair in zip(of(LOOP, REWARD), of(OTHER, REWARD), strict=True) for line in pair]
    data = "".join(f"{line}\n" for line in (*pairs, "x" * 500, *of(OTHER, ENGINE))).encode()
    for size in (1, 7, 100, len(data)):
        scan = LogScan()
        for begin in range(0, len(data), size):
            scan.feed(data[begin : begin + size])
        scan.finish()
        assert (scan.summary.reward_exceptions, scan.summary.rollout_exceptions.count) == (ExceptionCount(2, CAUSE), 1)


def test_rewards_that_a_manager_of_verl_replaces_by_zero() -> None:
    failed = "Reward computation failed for data_source=a: 'x': no. Response preview: 12..."
    timed_out = "Reward computation timed out after 300s for data_source=a. Response preview: 12..."
    assert scanned(failed, timed_out).summary == LogSummary(reward_exceptions=ExceptionCount(2, "'x': no"))
    assert scanned(timed_out).summary == LogSummary(reward_exceptions=ExceptionCount(1, "it timed out after 300s"))


def test_rows_that_were_dropped() -> None:
    selected = ["dataset len: 128", "selected 50 random samples out of 128", "filter dataset len: 49"]
    summary = scanned(*selected, "dataset len: 16", "filter dataset len: 16").summary
    assert summary == LogSummary(dropped_row_count=1, row_count=66)
    assert scanned("dataset len: 128").summary == LogSummary()


def test_the_phases_of_a_start() -> None:
    lines = {
        "MVP_PRECHECK_MARKER=verl-0.9.1": Phase.TRAINER,
        "INFO worker.py:1841 -- Connecting to existing Ray cluster at address: head:6379...": Phase.RAY,
        "(TaskRunnerV1 pid=1) Using dataset class: RLHFDataset": Phase.DATA,
        "(TaskRunnerV1 pid=1) INFO:2026:worker group kwargs: {'device_name': 'cpu'}": Phase.WORKERS,
        "(TaskRunnerV1 pid=1) INFO:2026:create worker group dict_keys(['actor_rollout_ref'])": Phase.WEIGHTS,
        "(TaskRunnerV1 pid=1) INFO:2026:reward loop manager initialized": Phase.ENGINE,
        "(WorkerDict pid=2) Loading weights: 100%|##| 27/27": Phase.ENGINE,
        "(TaskRunnerV1 pid=1) INFO:2026:all initialize finished, ready to fit": Phase.ROLLOUT,
        "(AgentLoopWorkerTQ pid=3) Using dataset class: RLHFDataset": Phase.ROLLOUT,
    }
    scan = LogScan()
    for line, phase in lines.items():
        scan.feed(f"{line}\n".encode())
        assert scan.phase == phase
    assert scanned("(TrainingWorker pid=1) \rLoading weights:   0%", "Epoch 1/1:   0%|").phase is Phase.STEP


def test_the_log_is_followed_over_its_parts(archive: Archive) -> None:
    archive.driver_log.write_text("of an earlier attempt\n")
    follower = LogFollower(archive)
    assert follower.read(100) == b""
    archive.append("logs/driver.log", "one\n")
    assert follower.read(2) + follower.read(100) == b"one\n"
    for number, line in enumerate(("two\n", "three\n"), 1):
        archive.append("logs/driver.log", line)
        archive.driver_log.rename(archive.driver_log.with_name(f"driver.log.{number}"))
    archive.driver_log.write_text("four\n")
    assert [follower.read(100) for _part in range(4)] == [b"two\n", b"three\n", b"four\n", b""]


SERVER = "\x1b[36m(vLLMHttpServer pid=57, ip=172.18.0.4)\x1b[0m "
SGLANG = "\x1b[36m(SGLangHttpServer pid=9)\x1b[0m "
CORE = "(EngineCore_DP0 pid=265) ERROR 02-27 10:31:24 "
DIED = f"{SERVER}{CORE}[multiproc_executor.py:231] Worker proc VllmWorker-0 died unexpectedly, shutting down executor."
# From public reports, with the prefixes that Ray and vLLM give them.
FATAL = (
    DIED,
    f"{SERVER}{CORE}core.py:710] EngineCore encountered a fatal error.",
    f"{SERVER}(APIServer pid=15) ERROR 01-21 04:15:38 [v1/engine/async_llm.py:546] vllm.v1.engine.exceptions."
    "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    f'{SERVER}(Worker_TP0 pid=60) ERROR 11-06 11:21:05 [multiproc_executor.py:699]   File "{VERL}/workers/rollout/'
    'vllm_rollout/bucketed_weight_transfer.py", line 291, in receive_weights',
    f"{SGLANG}[2026-04-25 02:01:26] Subprocess scheduler_0 (pid=7391) crashed with exit code -11. Triggering SIGQUIT "
    "for cleanup...",
    f"{SGLANG}[2026-03-04 13:10:13] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    f"{SGLANG}[2026-01-28 04:18:10 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    f"{SGLANG}[01-28 04:18:10] Rank 0 scheduler is dead. Please check if there are relevant logs.",
)


@pytest.mark.parametrize("line", FATAL)
def test_an_engine_that_says_that_it_has_ended(line: str) -> None:
    assert scanned(line).lost_engine
    # What a model generates is printed by other processes, and in the middle of a server's lines.
    assert not scanned(f"{LOOP}[response] {line}", LOOP + line.replace(SERVER, "").replace(SGLANG, "")).lost_engine
    assert not scanned(f"{SERVER}INFO 02-27 10:31:24 [logger.py:39] Received request a: prompt: {line!r}").lost_engine


def test_another_engine_takes_the_place_of_one_that_ended() -> None:
    started = (
        f"{SERVER}(EngineCore_DP0 pid=300) INFO 02-27 10:33:24 [core.py:93] Initializing a V1 LLM engine (v0.11.0)"
    )
    assert not scanned(DIED, started).lost_engine
    assert scanned(started, DIED, FATAL[1]).lost_engine == (
        "Worker proc VllmWorker-0 died unexpectedly, shutting down executor. "
        "(vLLMHttpServer pid=57, ip=172.18.0.4, EngineCore_DP0 pid=265)"
    )


def test_reports_of_a_trainer_that_hangs_show_no_progress() -> None:
    runner, controller = "\x1b[36m(TaskRunnerV1 pid=4718)\x1b[0m ", "\x1b[36m(TransferQueueController pid=4748)\x1b[0m "
    counts = f"{runner}INFO:2026-11-30 09:5%d:29,175:pending: 0, running: %d, finished: 0, failure: 0"
    scan = ProgressScan()
    lines = (
        (f"{runner}Training Progress:  10%|# | 4/40 [00:33<03:53,  6.49s/it]", True),
        (counts % (5, 8), True),
        (counts % (6, 8), False),
        (counts % (7, 7), True),
        (f"{controller}TQ_CONTROLLER_f6: [Performance] Total success requests: 521, Total req/min: 104.18; ", False),
        (f"{controller}Time range: last 5.00 minutes; ", False),
        (f"{controller}Per-operation statistics: KV_RETRIEVE_META: req_count=257, req/min=51.38", False),
        ("\x1b[33m(raylet)\x1b[0m file_system_monitor.cc:116: /tmp/ray is over 95% full", False),
        (f"{runner} 'count/total_generated_samples': 4,", True),
        (f"{runner} 'count/total_generated_samples': 4,", False),
        ("", False),
    )
    assert [scan.shows_progress(f"{line}\n".encode()) for line, _is_progress in lines] == [row[1] for row in lines]
