"""Run inside the CPU image: python -m pytest -p no:cacheprovider <this directory>."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import verl_cpu
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import (
    AutoModelForTokenClassification,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from verl.plugin.platform import PlatformRegistry, get_platform
from verl.utils import device
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.replica import RolloutReplicaRegistry, TokenOutput
from verl_cpu import rollout
from verl_cpu.platform import PlatformCPU
from verl_cpu.rollout import HFReplica, HFServer, Sampling, ServerAdapter, answer_length, server_name

PAD, END = 0, 1
PADDING, ENDING = "<pad>", "<end>"
VOCABULARY = 64
# What verl makes of "cpu:gloo,<device>:<backend>" on this platform.
VERLS_BACKEND = "cpu:gloo,cpu:gloo"
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12, 13], [14]]


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random Qwen2 of two layers, and a tokenizer that has the special tokens."""
    from tokenizers import Tokenizer, models

    path = tmp_path_factory.mktemp("model")
    vocabulary = {f"t{number}": number for number in range(2, VOCABULARY)} | {PADDING: PAD, ENDING: END}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PADDING))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=ENDING, pad_token=PADDING).save_pretrained(path)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        eos_token_id=END,
        pad_token_id=PAD,
        # With the usual 0.02 all tokens are nearly as likely, and a wrong log-probability would look right.
        initializer_range=0.5,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    return str(path)


def rollout_config(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"load_format": "auto", "dtype": "float32", "prompt_length": 16, "response_length": 12, **changes}
    )


@pytest.fixture
def server(model_path: str) -> HFServer:
    return HFServer(rollout_config(), model_path, replica_rank=0)


def generate(server: HFServer, prompts: list[list[int]], *params: dict[str, Any]) -> list[TokenOutput]:
    """Requests that arrive together, with one set of sampling parameters for all or one for each."""

    async def all_of_them() -> list[TokenOutput]:
        param_sets = params if len(params) > 1 else params * len(prompts)
        return await asyncio.gather(
            *(
                server.generate(prompt_ids=prompt, sampling_params=dict(param_set), request_id=str(number))
                for number, (prompt, param_set) in enumerate(zip(prompts, param_sets, strict=True))
            )
        )

    return asyncio.run(all_of_them())


@torch.no_grad()
def recomputed(server: HFServer, prompt: list[int], answer: list[int], temperature: float) -> list[float]:
    """Log-probabilities the way a trainer gets them: one forward pass over prompt and answer, without padding."""
    logits = server.model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].float()
    return torch.log_softmax(logits / temperature, -1).gather(-1, torch.tensor(answer)[:, None])[:, 0].tolist()


class TestPlatform:
    def test_verl_chooses_it_without_being_told(self) -> None:
        assert isinstance(get_platform(), PlatformCPU)
        assert PlatformRegistry.get("CPU") is PlatformCPU

    def test_verls_own_questions_are_answered_for_a_cpu(self) -> None:
        assert device.get_device_name() == "cpu"
        assert device.get_resource_name() == "GPU"
        assert device.get_nccl_backend() == "gloo"
        assert torch.device(device.get_device_id()) == torch.device("cpu")
        assert device.get_torch_device() is PlatformCPU.device_module

    def test_it_can_be_made_so_nothing_abstract_is_left(self) -> None:
        platform = PlatformCPU()
        assert platform.device_count() == 1
        with platform.nvtx_range("step"):
            pass

    def test_a_seed_makes_random_numbers_repeatable(self) -> None:
        platform = PlatformCPU()
        platform.manual_seed(3)
        first = torch.rand(2)
        platform.manual_seed_all(3)
        assert torch.equal(torch.rand(2), first)

    def test_the_device_module_has_memory_and_random_state(self) -> None:
        module = PlatformCPU.device_module
        free, total = module.mem_get_info()
        assert 0 < free <= total == module.get_device_properties(0).total_memory
        assert module.memory_allocated() == module.max_memory_reserved() == 0
        state = module.get_rng_state()
        first = torch.rand(2)
        module.set_rng_state(state)
        assert torch.equal(torch.rand(2), first)
        module.empty_cache()
        module.synchronize()


class TestPatches:
    def test_engines_of_cuda_are_taken(self) -> None:
        assert os.environ["VERL_ENGINE_DEVICE"] == "cuda"

    def test_verls_backend_string_makes_a_process_group_that_works(self, tmp_path: Path) -> None:
        where = {"init_method": f"file://{tmp_path}/store", "rank": 0, "world_size": 1}
        with pytest.raises(ValueError, match="Duplicate device type cpu"):
            dist.init_process_group.__wrapped__(VERLS_BACKEND, **where)
        dist.init_process_group(VERLS_BACKEND, **where)
        try:
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            assert tensor.tolist() == [1, 1, 1]
            assert dist.get_backend() == "cpu:gloo"
        finally:
            dist.destroy_process_group()

    def test_pinning_gives_the_tensor_itself(self) -> None:
        tensor = torch.ones(2)
        assert tensor.pin_memory() is tensor
        assert tensor.pin_memory("cpu") is tensor

    def test_data_is_loaded_without_further_processes(self) -> None:
        loader = StatefulDataLoader(list(range(6)), batch_size=2, num_workers=8, drop_last=True)
        assert loader.num_workers == 0
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]

    def test_finished_rollouts_are_looked_for_more_often(self) -> None:
        from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

        settings = {"max_off_policy_threshold": None, "max_off_policy_strategy": "drop", "sampler_kwargs": {}}
        assert ReplayBuffer("sync", {}, **settings).poll_interval == 0.2
        assert ReplayBuffer("sync", {}, **settings, poll_interval=3.0).poll_interval == 3.0

    def test_a_critic_loads_without_flash_attention(self, model_path: str) -> None:
        critic = AutoModelForTokenClassification.from_pretrained(
            model_path, num_labels=1, attn_implementation="flash_attention_2"
        )
        assert critic.config._attn_implementation == "eager"
        assert critic(torch.tensor([[5, 6]])).logits.shape == (1, 2, 1)


class TestRegistration:
    def test_the_rollout_is_known_by_its_name_on_both_sides(self) -> None:
        assert RolloutReplicaRegistry.get("hf_cpu") is HFReplica
        assert get_rollout_class("hf_cpu", "async") is ServerAdapter

    def test_nothing_abstract_is_left(self) -> None:
        assert not ServerAdapter.__abstractmethods__
        assert not HFReplica.__abstractmethods__

    def test_it_is_a_plugin_of_verl(self) -> None:
        from importlib.metadata import entry_points

        assert next(iter(entry_points(group="verl.plugins", name="cpu"))).load() is verl_cpu

    def test_replicas_have_different_servers(self) -> None:
        assert server_name(0) != server_name(1)


class TestSampling:
    def test_the_names_of_verl_and_of_transformers(self) -> None:
        assert Sampling.of({"max_tokens": 5}, 9).max_new_tokens == 5
        assert Sampling.of({"max_new_tokens": 6}, 9).max_new_tokens == 6
        assert Sampling.of({}, 9) == Sampling(9)

    def test_verls_all_tokens_is_transformers_zero(self) -> None:
        assert Sampling.of({"top_k": -1}, 9).top_k == 0
        assert Sampling.of({"top_k": 20}, 9).top_k == 20

    def test_temperature_zero_is_greedy(self) -> None:
        assert Sampling(9, temperature=0).arguments() == {"do_sample": False}
        assert Sampling(9, temperature=0.5).arguments() == {
            "do_sample": True,
            "temperature": 0.5,
            "top_p": 1.0,
            "top_k": 0,
        }


@pytest.mark.parametrize(
    ("tokens", "length"), [([5, END, PAD, PAD], 2), ([5, 6, 7], 3), ([END], 1), ([], 0), ([END, 5, END], 1)]
)
def test_an_answer_ends_with_its_first_end_token(tokens: list[int], length: int) -> None:
    assert answer_length(tokens, [END]) == length


class TestServer:
    @pytest.mark.parametrize("temperature", [0, 0.7, 1.0, 1.5])
    def test_log_probs_are_those_of_a_forward_pass(self, server: HFServer, temperature: float) -> None:
        answers = generate(server, PROMPTS * 4, {"temperature": temperature, "top_k": -1})
        assert {len(answer.token_ids) for answer in answers} - {0}
        for prompt, answer in zip(PROMPTS * 4, answers, strict=True):
            assert len(answer.log_probs) == len(answer.token_ids)
            expected = recomputed(server, prompt, answer.token_ids, temperature or 1.0)
            assert answer.log_probs == pytest.approx(expected, abs=1e-4)

    def test_log_probs_are_of_all_tokens_even_when_some_are_cut(self, server: HFServer) -> None:
        for prompt, answer in zip(
            PROMPTS, generate(server, PROMPTS, {"temperature": 1.0, "top_k": 3, "top_p": 0.9}), strict=True
        ):
            assert answer.log_probs == pytest.approx(recomputed(server, prompt, answer.token_ids, 1.0), abs=1e-4)

    def test_greedy_answers_do_not_depend_on_the_batch(self, server: HFServer) -> None:
        together = generate(server, PROMPTS, {"temperature": 0})
        alone = [generate(server, [prompt], {"temperature": 0})[0] for prompt in PROMPTS]
        assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]

    def test_requests_that_arrive_together_are_one_batch(
        self, server: HFServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes = self.batches(server, monkeypatch)
        generate(server, PROMPTS * 2, {"max_tokens": 2})
        assert sizes == [6]

    def test_a_batch_has_one_kind_of_sampling_and_a_limit(
        self, server: HFServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sizes = self.batches(server, monkeypatch)
        monkeypatch.setattr(rollout, "MAX_BATCH_SIZE", 2)
        short, long = {"max_tokens": 1, "temperature": 0}, {"max_tokens": 3, "temperature": 0}
        answers = generate(server, [[5], [6], [7], [8], [9]], short, long, short, short, long)
        assert sorted(sizes) == [1, 2, 2]
        assert all(len(answers[index].token_ids) == 1 for index in (0, 2, 3))
        assert all(len(answers[index].token_ids) <= 3 for index in (1, 4))

    @staticmethod
    def batches(server: HFServer, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        sizes: list[int] = []
        real = server._generate

        def counted(prompts: list[list[int]], sampling: Sampling) -> list[TokenOutput]:
            sizes.append(len(prompts))
            return real(prompts, sampling)

        monkeypatch.setattr(server, "_generate", counted)
        return sizes

    def test_equal_requests_all_get_an_answer_of_their_own(self, server: HFServer) -> None:
        answers = generate(server, [[5, 6]] * 8, {"temperature": 1.0})
        assert len({tuple(answer.token_ids) for answer in answers}) > 1

    def test_an_answer_ends_at_the_end_token_and_within_its_room(self, server: HFServer) -> None:
        for answer in generate(server, [[5]] * 32, {"temperature": 2.0}):
            assert len(answer.token_ids) <= 12
            assert END not in answer.token_ids[:-1]
            assert answer.stop_reason == "completed"
        # Of 28 places, 24 are taken by the prompt.
        assert len(generate(server, [[5] * 24], {"temperature": 0})[0].token_ids) <= 4

    def test_a_failure_reaches_everyone_who_waits_and_the_next_one_is_served(
        self, server: HFServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def both() -> list[Any]:
            requests = (server.generate(prompt_ids=[5], sampling_params={}, request_id=name) for name in "ab")
            return await asyncio.gather(*requests, return_exceptions=True)

        with monkeypatch.context() as patch:

            def fail(prompts: list[list[int]], sampling: Sampling) -> list[TokenOutput]:
                raise RuntimeError("out of memory")

            patch.setattr(server, "_generate", fail)
            assert [str(error) for error in asyncio.run(both())] == ["out of memory"] * 2
        assert generate(server, [[5]], {"temperature": 0})[0].token_ids

    def test_new_weights_change_the_answers_and_carry_their_step(self, server: HFServer) -> None:
        before = generate(server, PROMPTS, {"temperature": 0})
        assert before[0].extra_fields == {"global_steps": None}
        torch.manual_seed(7)
        weights = {name: torch.randn_like(tensor) for name, tensor in server.model.state_dict().items()}
        assert asyncio.run(server.update_weights(weights, 3)) == len(weights)
        after = generate(server, PROMPTS, {"temperature": 0})
        assert after[0].extra_fields == {"global_steps": 3}
        assert [answer.token_ids for answer in before] != [answer.token_ids for answer in after]
        for prompt, answer in zip(PROMPTS, after, strict=True):
            assert answer.log_probs == pytest.approx(recomputed(server, prompt, answer.token_ids, 1.0), abs=1e-3)

    def test_part_of_the_weights_is_enough_and_keeps_the_step(self, server: HFServer) -> None:
        name, tensor = next(iter(server.model.state_dict().items()))
        asyncio.run(server.set_global_steps(5))
        asyncio.run(server.update_weights({name: torch.zeros_like(tensor)}))
        assert server.global_steps == 5
        assert not server.model.state_dict()[name].any()

    def test_weights_of_another_model_are_refused_and_change_nothing(self, server: HFServer) -> None:
        name, tensor = next(iter(server.model.state_dict().items()))
        before = tensor.clone()
        with pytest.raises(ValueError, match=r"1 tensors that the model does not have: \['base_model\.lora_A'\]"):
            asyncio.run(server.update_weights({name: torch.zeros_like(tensor), "base_model.lora_A": torch.ones(1)}, 9))
        assert torch.equal(server.model.state_dict()[name], before)
        assert server.global_steps is None

    def test_dummy_weights_and_bfloat16(self, model_path: str) -> None:
        server = HFServer(rollout_config(load_format="dummy", dtype="bfloat16"), model_path, replica_rank=1)
        assert server.model.dtype == torch.bfloat16
        assert len(generate(server, PROMPTS, {"max_tokens": 2})) == len(PROMPTS)

    def test_what_an_engine_can_do_is_there_and_does_nothing(self, server: HFServer) -> None:
        for name in ("wake_up", "sleep", "clear_kv_cache", "abort_all_requests", "resume_generation", "stop_profile"):
            assert asyncio.run(getattr(server, name)()) is None


class TestAdapter:
    def adapter(self, monkeypatch: pytest.MonkeyPatch, rank: int, replica_rank: int = -1) -> ServerAdapter:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setattr("verl.workers.rollout.base.omega_conf_to_dataclass", lambda config: config)
        config = SimpleNamespace(tensor_model_parallel_size=2, data_parallel_size=1)
        return ServerAdapter(config, None, None, replica_rank)

    @pytest.mark.parametrize(("rank", "replica", "leads"), [(0, 0, True), (1, 0, False), (2, 1, True), (3, 1, False)])
    def test_the_first_process_of_a_replica_pushes(
        self, monkeypatch: pytest.MonkeyPatch, rank: int, replica: int, leads: bool
    ) -> None:
        adapter = self.adapter(monkeypatch, rank)
        assert (adapter.replica_rank, adapter.is_first) == (replica, leads)

    def test_all_processes_iterate_and_one_pushes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pushed: list[tuple[str, dict[str, torch.Tensor], int | None]] = []

        def get_actor(name: str) -> SimpleNamespace:
            async def remote(tensors: dict[str, torch.Tensor], global_steps: int | None) -> int:
                pushed.append((name, tensors, global_steps))
                return len(tensors)

            return SimpleNamespace(update_weights=SimpleNamespace(remote=remote))

        monkeypatch.setattr(rollout.ray, "get_actor", get_actor)
        for rank in (2, 3):
            weights = iter([("a", torch.ones(1, requires_grad=True)), ("b", torch.zeros(1))])
            asyncio.run(self.adapter(monkeypatch, rank).update_weights(weights, global_steps=4))
            # A rank that stopped iterating would leave the others waiting in their collectives.
            assert next(weights, None) is None
        [(name, tensors, steps)] = pushed
        assert (name, sorted(tensors), steps) == (server_name(1), ["a", "b"], 4)
        assert not tensors["a"].requires_grad

    def test_another_wire_format_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ValueError, match="wire_format 'bucketed' is not supported"):
            asyncio.run(self.adapter(monkeypatch, 0).update_weights(iter([]), wire_format="bucketed"))


def test_garbage_is_looked_for_rarely() -> None:
    """In every process of the image: the file that sets it is read by Python itself."""
    assert gc.get_threshold() == (100_000, 50, 100)
