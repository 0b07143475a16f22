from __future__ import annotations

from pathlib import Path

import pytest

from argus.archive.failures import FailureKind
from argus.hooks.isolation import FOREIGN_ACTOR_TEXT
from argus.launcher import diagnosis
from argus.launcher.diagnosis import classify
from argus.launcher.failure_rules import CAUSES, CONSEQUENCES

LOGS = Path(__file__).parent / "logs"


def log(name: str) -> str:
    # The carriage returns of progress bars stay.
    return (LOGS / f"{name}.log").read_bytes().decode()


# The words that the advice has to contain, where a kind has several.
NAMED = {
    "chat_template": "custom_chat_template",
    "device_assert": "vocab_size",
    "ecc": "nvidia-smi -q -d ECC",
    "heads_valueerror": "tensor_model_parallel_size",
    "sglang_static": "Raise actor_rollout_ref.rollout.gpu_memory_utilization",
    "ray_thread": "nproc",
    "too_many_files": "nofile",
    "vllm-cache": "Raise actor_rollout_ref.rollout.gpu_memory_utilization",
    "vllm-start": "Lower actor_rollout_ref.rollout.gpu_memory_utilization",
}
# The words that the reason contains.
REASONS = {
    "config-refused-value": "actor_rollout_ref.actor: ValueError('Invalid loss_agg_mode: token-meen')",
    "config-unknown-key": "actor_rollout_ref.actor.optim.learning_rate",
    "killed-rank": "rank 1 (pid=26) was killed by SIGKILL (run_node pid=77, ip=172.18.0.4)",
    "data-sft-column": "'messages' (/private/datasets/no_messages/train.parquet)",
    "reward-raises": "IndexError: list index out of range (/private/user/code/raises.py, line 2)",
    "host_oom-monitor": "the node 172.19.0.4 ran out of memory: Ray killed 3 of its processes",
    "gpu_oom-update_actor": "GPU 0 ran out of memory: 30.29 GiB",
    "communication-nccl-watchdog": "ALLREDUCE did not finish within 600009 ms",
    "port_in_use-vllm": "port 32847 is in use (vLLMHttpServer pid=6840, Worker pid=7181)",
    "node_lost-owner": "node 10.0.0.2 was lost",
    "killed-full_shm": "SIGBUS (WorkerDict pid=",
    "killed-peer": "(pid=1111, ip=172.18.0.3)",
    "killed-kernel-oom": "RewardLoopWorker (pid=15386, ip=172.19.0.2)",
}
REPORTED = sorted((LOGS / "reported").glob("*.log"))
RECORDED = [path for path in sorted(LOGS.glob("*.log")) if not path.stem.startswith("good")]


@pytest.mark.parametrize("path", RECORDED + REPORTED, ids=lambda path: path.stem)
def test_a_recorded_or_reported_failure(path: Path) -> None:
    # The carriage returns of progress bars stay.
    failure = classify(path.read_bytes().decode(), None if path.stem == "node_lost-driver" else 1)
    kind, _hyphen, name = path.stem.partition("-")
    assert failure.kind == kind and REASONS.get(path.stem, "") in failure.reason
    assert failure.lines
    assert failure.todo and NAMED.get(name, "") in failure.todo
    # Exceptions that only tell of another process are no reason.
    reason = failure.reason.rpartition("an engine ended: ")[2]
    assert path in RECORDED or kind == "engine_lost" or not diagnosis.WRAPPER.search(reason)


def of_a_rank(line: str) -> str:
    return line if line.startswith(("\x1b", "(")) else f"(run_node pid=77, ip=172.18.0.4) [rank1]: {line}"


NOISE = """Exception ignored in: <function Worker.__del__>
Traceback (most recent call last):
  File "/x.py", line 3, in f
AttributeError: 'NoneType' object has no attribute 'close'
"""


@pytest.mark.parametrize("path", REPORTED, ids=lambda path: path.stem)
def test_a_reported_failure_in_other_lines(path: Path) -> None:
    text = path.read_text()
    ranks = "".join(f"{of_a_rank(line)}\n" for line in text.split("\n")) + f"{diagnosis.TORCHRUN_FAILED}\n"
    kind = path.stem.partition("-")[0]
    assert {classify(log, 1).kind for log in (text.replace("\n", "\r\n"), text + NOISE, ranks)} == {kind}


VERL, VLLM = "verl-0.9.1/verl/workers/engine_workers.py", "site-packages/vllm/v1/engine/core.py"
# The exceptions with which trainers ended in public reports.
EXCEPTIONS = [
    ("config", VERL, "AssertionError: only support equal chunk. Got size of DataProto 2 and chunk 4."),
    ("config", VERL, "RuntimeError: world_size (8) is not divisible by total_model_size (16)"),
    ("config", VERL, "FileNotFoundError: [Errno 2] No such file or directory: '/c/actor/model_world_size_8_rank_0.pt'"),
    ("config", VERL, "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0"),
    ("config", VERL, "RuntimeError: Cannot re-initialize CUDA in forked subprocess."),
    ("config", VERL, "ray.exceptions.RuntimeEnvSetupError: Failed to set up runtime environment."),
    ("config", VLLM, "ValueError: LoRA rank 128 is greater than max_lora_rank 64."),
    (
        "config",
        VERL,
        "huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo for url https://h",
    ),
    ("import", VERL, "triton.compiler.errors.CompilationError: at 1:0:"),
    ("import", VLLM, "torch._inductor.exc.InductorError: RuntimeError: Failed to find C compiler."),
    ("import", VLLM, "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', '-O3']' returned 1."),
    ("import", VERL, "OSError: libcudart.so.12: cannot open shared object file: No such file or directory"),
    ("import", VERL, "ray.exceptions.ActorDiedError: The actor died.\n\tclass_name: TemporaryActor\n\tactor_id: 32"),
    ("import", VLLM, "ValueError: The quantization method fp8 is not supported. Minimum capability: 89."),
    ("model", VLLM, "ValueError: Head size 80 is not supported by FlashAttention."),
    ("model", VERL, "ValueError: Tokenizer class Qwen9Tokenizer does not exist or is not currently imported."),
    ("model", VERL, "_pickle.UnpicklingError: invalid load key, 'v'."),
    ("data", VERL, "ValueError: Image features and image tokens do not match: tokens: 1024, features 2048"),
    ("gpu_oom", VERL, "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    ("port_in_use", VERL, "RuntimeError: Failed to start SGLang server: port 30000 is already in use"),
    ("service", VERL, "socket.gaierror: [Errno -3] Temporary failure in name resolution"),
    ("node_lost", VERL, "ray.exceptions.ObjectLostError: All copies of the object have been lost due to node failure."),
    ("killed", VERL, "ray.exceptions.OwnerDiedError: Failed to retrieve object 00ff. The object's owner has exited."),
    ("unknown", VERL, "RuntimeError: The size of tensor a (4) must match the size of tensor b (8)"),
]


@pytest.mark.parametrize(("kind", "file", "exception"), EXCEPTIONS, ids=lambda text: text[:40])
def test_what_an_exception_means(kind: str, file: str, exception: str) -> None:
    frame = f'Traceback (most recent call last):\n  File "/x/{file}", line 3, in f\n'
    failure = classify(f"{diagnosis.HYDRA_ERROR} []\n{frame}{exception}\n", 1)
    assert failure.kind == kind and failure.todo


def test_a_wrapper_without_a_cause_is_not_the_reason() -> None:
    end = HYDRA + '  File "/opt/engine.py", line 9, in launch\n    data = pipe.recv()\nEOFError\n'
    assert "EOFError" not in classify(end, 1).reason
    failure = classify(f'(X pid=9)   File "/x.py", line 1, in f\n(X pid=9) OddThing: no\n{end}', 1)
    assert (failure.kind, failure.reason) == ("unknown", "the trainer ended with exit code 1: OddThing: no (X pid=9)")
    assert failure.lines[-1] == "(X pid=9) OddThing: no"


def test_what_another_process_handled_is_no_cause_of_a_dead_actor() -> None:
    handled = '(Other pid=7)   File "/x.py", line 1, in f\n(Other pid=7) OSError: [Errno 24] Too many open files\n'
    assert classify(handled + HYDRA + ACTOR, 1).kind == "killed"
    assert classify(handled.replace("pid=7", "pid=3606") + HYDRA + ACTOR, 1).kind == "limit"


@pytest.mark.parametrize("exit_code", [0, 1])
@pytest.mark.parametrize("name", ["good-grpo", "good-sft"])
def test_a_log_without_a_failure(name: str, exit_code: int) -> None:
    failure = classify(log(name), exit_code)
    assert (failure.kind, failure.reason) == ("unknown", f"the trainer ended with exit code {exit_code}")


def test_a_node_is_named_by_its_whole_name() -> None:
    assert classify(log("reported/gpu_fault-ecc"), 1).node == "10.0.0.2"
    for text in (NODE, MARKED_DEAD):
        assert classify(text.replace("0d443baa", "gpu-1.example.org"), 1).reason.startswith("node gpu-1.example.org ")


HYDRA = "Error executing job with overrides: ['trainer.nnodes=1']\nTraceback (most recent call last):\n"
NODE = "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n" + (
    "The actor died because its node has died. Node Id: 0d443baa\n"
)
MARKED_DEAD = (
    "(raylet) The node with node id: 0d443baa and address: 10.0.0.2 has been marked dead because the detector\n"
)
ACTOR = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: WorkerDict\n\tactor_id: 74f2\n\tpid: 3606\n\tname: AbCdEfWorkerDict_1:0\n\tip: 10.0.0.2\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: "
    "Worker unexpectedly exits with a connection error code 2. End of file. Some common causes include: (1) the "
    "process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called\n"
)
UNAVAILABLE = (
    "ray.exceptions.ActorUnavailableError: The actor 5be1 is unavailable: The actor is temporarily unavailable: "
    "RpcError: RPC error: Socket closed rpc_code: 14. The task may or may not have been executed on the actor.\n"
)
UNSCHEDULABLE = "ray.exceptions.TaskUnschedulableError: The task is not schedulable: task is unschedulable: The node"
GLOO = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer [10.0.0.2]:9\n"
)
REMOTE = (
    "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:2501, remote process exited or "
    "there was a network error, NCCL version 2.27.3\n"
)
RAY_OOM_256 = (
    "Unexpected error occurred: 1 worker(s) were killed due to the node running low on memory. "
    "Memory on the node (IP: 10.0.0.2, ID: 0d44) was 4.76GB used / 5.00GB limit (0.952)\n"
)
CUDA_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of\n"
DATASET = '  File "/code/verl/utils/dataset/rl_dataset.py", line 313, in _build_messages\n    example[key]\n'
REWARD = (
    '  File "/code/verl/experimental/reward_loop/reward_manager/naive.py", line 77, in <lambda>\n'
    '  File "/user/code/reward.py", line 4, in score\n    return 1 / 0\n'
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        # A lost node also ends actors and connections, and so do a kill and too little memory.
        (HYDRA + GLOO + ACTOR + NODE, "node_lost"),
        (MARKED_DEAD + HYDRA + ACTOR, "node_lost"),
        (HYDRA + UNAVAILABLE, "node_lost"),
        (HYDRA + ACTOR + GLOO, "killed"),
        (HYDRA + ACTOR + RAY_OOM_256, "host_oom"),
        ("(raylet) " + RAY_OOM_256 + HYDRA + ACTOR, "host_oom"),
        (HYDRA + CUDA_OOM + ACTOR, "gpu_oom"),
        (HYDRA + REMOTE + ACTOR, "killed"),
        (HYDRA + "torch.distributed.DistStoreError: Timed out after 601 seconds waiting.\n", "communication"),
        (HYDRA + f"{UNSCHEDULABLE} specified via NodeAffinitySchedulingStrategy doesn't exist any more\n", "node_lost"),
        (HYDRA + f"RuntimeError: QueueController {FOREIGN_ACTOR_TEXT}: job 01 has created it\n", "transfer_queue"),
        # A node that the job may not even have used, and a reward that fails.
        (MARKED_DEAD + HYDRA + REWARD + "ZeroDivisionError: division by zero\n", "reward"),
        # An actor that dies passes through the code of rewards and datasets as well.
        (HYDRA + REWARD + ACTOR, "killed"),
        (HYDRA + DATASET + NODE, "node_lost"),
        # In a chain of exceptions the cause counts.
        (HYDRA + REWARD + "ModuleNotFoundError: No module named 'sympy'\n\n" + REWARD + "ValueError: x\n", "import"),
        # A data loader's process is no error of the dataset.
        (
            HYDRA + DATASET + "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. It is possible "
            "that dataloader's workers are out of shared memory.\n",
            "host_oom",
        ),
        # Without Hydra.
        ("/opt/verl/bin/python3: No module named verl.trainer.sft\n", "import"),
        ("The job was not started: the snapshot's marker is 'x', not 'y'; stage it again\n", "import"),
        # verl reports only that every trajectory failed.
        (
            "(AgentLoopWorker pid=1) " + REWARD.replace("\n", "\n(AgentLoopWorker pid=1) ", 2)
            # One line of this traceback is of another process.
            + "(WorkerDict pid=2) ok\n(AgentLoopWorker pid=1) ZeroDivisionError: division by zero\n" + HYDRA
            + "RuntimeError: Sync replay buffer selected terminal groups with no materializable trajectories.\n",
            "reward",
        ),
        # Crashes, as Ray writes them.
        ("(WorkerDict pid=1) *** SIGSEGV received at time=1795183209 on cpu 1 ***\n" + HYDRA + ACTOR, "killed"),
        # Disks and ports.
        (HYDRA + "OSError: [Errno 30] Read-only file system: '/private/jobs/x'\n", "storage"),
        (HYDRA + "OSError: [Errno 122] Disk quota exceeded: '/private/jobs/x'\n", "disk_full"),
        (HYDRA + "OSError: [Errno 98] Address already in use\n", "port_in_use"),
        # Nothing that is known.
        (HYDRA + '  File "/x.py", line 1, in <module>\nValueError: something\n', "unknown"),
        ("", "unknown"),
    ],
)  # fmt: skip
def test_causes_take_precedence_over_their_consequences(text: str, kind: str) -> None:
    assert classify(text, 1).kind == kind


@pytest.mark.parametrize(
    "line",
    [
        "(pid=7)   File \"/x.py\", line 1\n(pid=7) ModuleNotFoundError: No module named 'vllm._C'",
        "(raylet) 0 Workers (tasks / actors) killed due to memory pressure (OOM), 1 Workers crashed",
        "(AgentLoopWorker pid=1) " + REWARD.replace("\n", "\n(AgentLoopWorker pid=1) ") + "ValueError: of one answer",
        DATASET + "KeyError: 'handled'",
        "NCCL WARN is the level; NCCL error in: is a text",
    ],
)
def test_a_matching_word_elsewhere_in_the_log_is_not_a_cause(line: str) -> None:
    end = HYDRA + '  File "/x.py", line 1, in <module>\nValueError: something\n'
    failure = classify(f"{line}\n{end}", 1)
    assert (failure.kind, failure.reason) == ("unknown", "the trainer ended with exit code 1: ValueError: something")


@pytest.mark.parametrize(
    ("exit_code", "kind", "reason"),
    [
        (-9, "killed", "the trainer was killed by signal 9 (SIGKILL)"),
        (137, "killed", "the trainer was killed by signal 9 (SIGKILL)"),
        (255, "killed", "the trainer was killed by signal 127"),
        (None, "node_lost", "the driver's node was lost"),
    ],
)
def test_an_end_without_an_exception(exit_code: int | None, kind: str, reason: str) -> None:
    # A trainer that was killed or lost has no final exception: exceptions in the log were handled.
    failure = classify(f"{DATASET}KeyError: 'handled'\n{HYDRA}", exit_code)
    assert (failure.kind, failure.reason) == (kind, reason)


def test_steps_are_reported_where_they_matter() -> None:
    assert classify(HYDRA + GLOO, 1, 0).reason.endswith(", before the first step")
    assert classify(HYDRA + GLOO, 1, 7).reason.endswith(", after step 7")
    assert "step" not in classify(HYDRA + ACTOR, 1, 7).reason


DOCUMENTATION = Path(__file__).parents[3] / "docs" / "failures.md"
FROM_NO_LOG = {"stalled", "stopped", "deadline", "no_resources", "dependency"}
RETRIED = {"node_lost", "head_lost", "engine_lost", "killed", "gpu_fault", "service"}


def test_the_rules_cover_all_kinds_that_a_log_can_show() -> None:
    kinds = {rule.kind for rule in CAUSES + CONSEQUENCES}
    assert kinds == set(FailureKind) - FROM_NO_LOG - {"unknown"}


def test_the_documentation_has_all_kinds_in_their_order() -> None:
    rows = [line.split("`")[1] for line in DOCUMENTATION.read_text().splitlines() if line.startswith("| `")]
    assert rows == list(FailureKind)


@pytest.mark.parametrize(
    ("steps", "retried"),
    [(0, RETRIED), (3, RETRIED | {"communication", "storage"})],
)
def test_which_failures_are_retried(steps: int, retried: set[str]) -> None:
    assert {kind for kind in FailureKind if kind.is_retryable(steps)} == retried
