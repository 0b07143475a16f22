"""The rollout ``hf_cpu``: token-in, token-out generation with transformers.

One replica is one Ray actor with its own copy of the model. After every step the trainer sends it the new weights,
as it does to verl's inference engines. ``actor_rollout_ref.rollout.name=hf_cpu`` selects the rollout.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ray
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

ROLLOUT_NAME = "hf_cpu"
MAX_BATCH_SIZE = 32
# The server waits for so long before it makes a batch: requests of one step arrive within this time.
GATHER_SECONDS = 0.05


@dataclass(frozen=True)
class Sampling:
    """The parameters of sampling, which are equal for all requests of a batch, with the names of transformers."""

    max_new_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    @classmethod
    def of(cls, params: dict[str, Any], default_tokens: int) -> Sampling:
        """From verl's sampling parameters; ``top_k=-1`` means "all", which is 0 in transformers."""
        return cls(
            max_new_tokens=int(params.get("max_tokens") or params.get("max_new_tokens") or default_tokens),
            temperature=float(params.get("temperature", 1.0)),
            top_p=float(params.get("top_p", 1.0)),
            top_k=max(0, int(params.get("top_k", 0))),
        )

    def arguments(self) -> dict[str, Any]:
        if self.temperature == 0:
            return {"do_sample": False}
        return {"do_sample": True, "temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k}


@dataclass
class Request:
    prompt: list[int]
    sampling: Sampling
    answer: asyncio.Future[TokenOutput]


def answer_length(tokens: list[int], eos: list[int]) -> int:
    """The number of tokens up to the first end-of-sequence token, with that one; or of all, if there is none."""
    return next((i + 1 for i, token in enumerate(tokens) if token in eos), len(tokens))


class HFServer:
    """The Ray actor of one replica: the model, with the methods that verl calls on an inference server."""

    def __init__(self, config: Any, model_path: str, replica_rank: int) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

        torch.manual_seed(replica_rank)
        self.config = config
        self.global_steps: int | None = None
        self.queue: list[Request] = []
        # The task that generates the answers of the queue, or has ended with the last of them.
        self.queue_task: asyncio.Task[None] | None = None
        if config.load_format == "dummy":
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model_path))
        else:
            model = AutoModelForCausalLM.from_pretrained(model_path)
        self.model = model.to(torch.bfloat16 if config.dtype == "bfloat16" else torch.float32).eval()
        eos = GenerationConfig.from_pretrained(model_path).eos_token_id
        self.eos_ids = eos if isinstance(eos, list) else [eos]
        pad = AutoTokenizer.from_pretrained(model_path).pad_token_id
        self.pad_id = self.eos_ids[0] if pad is None else pad

    async def address(self) -> str:
        # Nothing listens there: verl uses it as the name of the replica, and calls the actor.
        return f"{ray.util.get_node_ip_address()}:0"

    async def update_weights(self, weights: dict[str, torch.Tensor], global_steps: int | None = None) -> int:
        """Replace weights of the model, and return their number. Raises ValueError if the model lacks one of them."""
        # This is checked first, because strict=False would load the weights that the model has, and ignore the others.
        unexpected = sorted(weights.keys() - self.model.state_dict().keys())
        if unexpected:
            raise ValueError(
                f"hf_cpu: the trainer sent {len(unexpected)} tensors that the model does not have: {unexpected}"
            )
        self.model.load_state_dict(weights, strict=False)
        if global_steps is not None:
            self.global_steps = global_steps
        return len(weights)

    async def set_global_steps(self, global_steps: int) -> None:
        self.global_steps = global_steps

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        free_tokens = self.config.prompt_length + self.config.response_length - len(prompt_ids)
        sampling = Sampling.of(sampling_params, default_tokens=min(self.config.response_length, free_tokens))
        request = Request(list(prompt_ids), sampling, asyncio.get_running_loop().create_future())
        self.queue.append(request)
        if self.queue_task is None or self.queue_task.done():
            self.queue_task = asyncio.create_task(self._generate_queue())
        return await request.answer

    async def _generate_queue(self) -> None:
        """Generate the answers of all queued requests, in batches of requests with the same sampling."""
        await asyncio.sleep(GATHER_SECONDS)
        while self.queue:
            sampling = self.queue[0].sampling
            batch = [request for request in self.queue if request.sampling == sampling][:MAX_BATCH_SIZE]
            self.queue = [request for request in self.queue if request not in batch]
            try:
                answers = await asyncio.to_thread(self._generate, [request.prompt for request in batch], sampling)
            except Exception as error:  # any error must reach every caller
                for request in batch:
                    if not request.answer.done():
                        request.answer.set_exception(error)
            else:
                for request, answer in zip(batch, answers, strict=True):
                    # A cancelled request is done already; the others of its batch still wait.
                    if not request.answer.done():
                        request.answer.set_result(answer)

    @torch.no_grad()
    def _generate(self, prompts: list[list[int]], sampling: Sampling) -> list[TokenOutput]:
        width = max(map(len, prompts))
        output = self.model.generate(
            input_ids=torch.tensor([[self.pad_id] * (width - len(p)) + p for p in prompts]),
            attention_mask=torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts]),
            max_new_tokens=sampling.max_new_tokens,
            eos_token_id=self.eos_ids,
            pad_token_id=self.pad_id,
            return_dict_in_generate=True,
            output_logits=True,
            **sampling.arguments(),
        )
        tokens = output.sequences[:, width:]
        # From the raw logits, not those after top_k or top_p: the trainer compares them with its own.
        scale = sampling.temperature or 1.0
        log_probs = torch.stack([torch.log_softmax(step.float() / scale, -1) for step in output.logits], dim=1)
        log_probs = log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
        answers = []
        for row, row_log_probs in zip(tokens.tolist(), log_probs.tolist(), strict=True):
            end = answer_length(row, self.eos_ids)
            answers.append(
                TokenOutput(
                    token_ids=row[:end],
                    log_probs=row_log_probs[:end],
                    stop_reason="completed",
                    extra_fields={"global_steps": self.global_steps},
                )
            )
        return answers

    async def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """No-ops for the memory and caches of an inference engine, which this server does not have."""

    wake_up = sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = _nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = _nothing


def server_name(replica_rank: int) -> str:
    return f"{ROLLOUT_NAME}_server_{replica_rank}"


class HFReplica(RolloutReplica):
    """Starts a replica's server on the node of its first worker, in the pool of the trainer or of rollouts."""

    async def launch_servers(self) -> None:
        node_id = await self.workers[0].__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        server = (
            ray.remote(HFServer)
            .options(
                name=server_name(self.replica_rank),
                num_cpus=0,
                max_concurrency=self.max_concurrency,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
            )
            .remote(self.config, self.model_config.path, self.replica_rank)
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"{await server.address.remote()}/{self.replica_rank}"


class ServerAdapter(BaseRollout):
    """The part of the rollout in each worker of the trainer: the first worker of a replica sends it the weights."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        rank = int(os.environ["RANK"])
        replica_size = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        self.replica_rank = rank // replica_size if replica_rank == -1 else replica_rank
        self.is_first = rank % replica_size == 0

    async def resume(self, tags: list[str]) -> None:
        pass

    async def release(self) -> None:
        pass

    async def update_weights(
        self,
        weights: Iterable[tuple[str, torch.Tensor]],
        global_steps: int | None = None,
        wire_format: str = "named_tensors",
        **_: Any,
    ) -> None:
        if wire_format != "named_tensors":
            raise ValueError(f"hf_cpu: wire_format {wire_format!r} is not supported, only 'named_tensors'")
        start = time.monotonic()
        # Every rank must iterate: gathering a sharded tensor needs all of them.
        tensors = {
            name: tensor.detach().cpu() async for name, tensor in ensure_async_iterator(weights) if self.is_first
        }
        if self.is_first:
            server = ray.get_actor(server_name(self.replica_rank))
            count = await server.update_weights.remote(tensors, global_steps)
            seconds = time.monotonic() - start
            print(f"hf_cpu: {count} tensors to replica {self.replica_rank} at step {global_steps} in {seconds:.2f} s")


RolloutReplicaRegistry.register(ROLLOUT_NAME, lambda: HFReplica)
# verl has no public API to register the trainer's side of a rollout.
_ROLLOUT_REGISTRY[(ROLLOUT_NAME, "async")] = f"{__name__}.{ServerAdapter.__name__}"
