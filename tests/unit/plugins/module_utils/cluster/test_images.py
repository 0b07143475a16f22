from __future__ import annotations

from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.images import (
    INPUTS_LABEL,
    Copy,
    Runtime,
    Sources,
    Supply,
    copies,
    image_findings,
    runtime_problems,
    supply,
)
from samples import machine

BUILT, PULLED = "argus-verl-cpu:0.1.0", "verlai/verl:vllm024.latest"
THERE = Image("sha256:1", {})


def test_images_that_are_there() -> None:
    machines = {"a": machine(images={BUILT: THERE, PULLED: None})}
    # Of those that are missing, only the ones that nodes need are reported.
    assert list(image_findings({"a": BUILT}, machines)) == []


def test_image_that_no_registry_has() -> None:
    machines = {"a": machine(images={BUILT: None})}
    assert list(image_findings({"a": BUILT}, machines)) == [
        Finding(
            "a",
            "the image argus-verl-cpu:0.1.0 is missing, and its name has no registry to pull it from",
            "build it there (images/cpu/build.py NAME), or copy it (docker save argus-verl-cpu:0.1.0 | ssh a docker "
            "load, on a machine that has it), or set cluster_image_builds or cluster_image_archive, or correct "
            "cluster_images",
            ERROR,
        )
    ]


def test_image_that_another_machine_has() -> None:
    machines = {"a": machine(images={BUILT: None, PULLED: None}), "b": machine(images={BUILT: THERE, PULLED: THERE})}
    todo = "copies it from b through the shared root"
    assert list(image_findings({"a": BUILT, "b": BUILT}, machines)) == [
        Finding("a", f"the image {BUILT} is missing", f"cluster_up {todo}", WARNING)
    ]
    (finding,) = image_findings({"a": PULLED}, machines)
    assert finding.todo == f"cluster_up pulls it, or {todo}"
    # A saved image has no digests: the name would not be found after loading it.
    named = f"{PULLED}@sha256:1"
    machines = {"a": machine(images={named: None}), "b": machine(images={named: THERE})}
    (finding,) = image_findings({"a": named}, machines)
    assert finding.todo.startswith("cluster_up pulls it; where a does not reach")


def test_images_that_are_provided_are_no_problem() -> None:
    machines = {"a": machine(images={BUILT: None})}
    assert list(image_findings({"a": BUILT}, machines, Sources(builds={BUILT: "1"}))) == []
    assert list(image_findings({"a": BUILT}, machines, Sources(archive=True))) == []
    (finding,) = image_findings({"a": BUILT}, machines, Sources(builds={PULLED: "1"}))
    assert finding.severity == ERROR


def test_image_of_a_registry_is_a_warning() -> None:
    assert list(image_findings({"a": PULLED}, {"a": machine(images={PULLED: None})})) == [
        Finding(
            "a",
            "the image verlai/verl:vllm024.latest is missing",
            "cluster_up pulls it; where a does not reach its registry: docker save verlai/verl:vllm024.latest | ssh a "
            "docker load, on a machine that has it",
            WARNING,
        )
    ]


def test_machines_without_an_answer() -> None:
    """One that was not probed, and one whose engine did not say."""
    assert list(image_findings({"a": BUILT, "b": BUILT}, {"b": machine(images={})})) == []


def test_name_of_an_image_is_quoted() -> None:
    (finding,) = image_findings({"a": "x;reboot"}, {"a": machine(images={"x;reboot": None})})
    assert "docker save 'x;reboot' | ssh a" in finding.todo


def test_the_command_that_brings_an_image_is_that_of_the_engine() -> None:
    there = machine(images={PULLED: None})
    (finding,) = image_findings({"a": PULLED}, {"a": replace(there, engine=replace(there.engine, name="podman"))})
    assert f"podman save {PULLED} | ssh a podman load" in finding.todo


NEW = Image("sha256:2", {INPUTS_LABEL: "new"})
OLD = Image("sha256:1", {INPUTS_LABEL: "old"})
REGISTRY = "registry.example.org/mine:1"


def supplied(needs: dict[str, list[str]], sources: Sources, **images: dict[str, Image | None]) -> Supply:
    return supply(needs, {host: machine(images=there) for host, there in images.items()}, "head", sources)


def test_image_is_built_once_and_only_if_no_machine_has_it() -> None:
    sources = Sources(builds={BUILT: "new"})
    needs = {"head": [BUILT], "gpu": [BUILT]}
    nowhere: dict[str, Image | None] = {BUILT: None}
    assert supplied(needs, sources, head=nowhere, gpu=nowhere) == Supply([BUILT], {}, {})
    assert supplied(needs, sources, head={BUILT: OLD}, gpu={BUILT: THERE}) == Supply([BUILT], {}, {})
    assert supplied({"head": [BUILT]}, sources, head={BUILT: OLD}, gpu={BUILT: NEW}) == Supply([], {}, {})
    # Without a build, there is nothing that this run can do before it copies.
    assert supplied(needs, Sources(), head=nowhere, gpu=nowhere) == Supply([], {}, {})


def test_images_of_registries_are_pulled() -> None:
    needs = {"head": [REGISTRY, BUILT], "gpu": [REGISTRY]}
    pulls = {"head": [REGISTRY], "gpu": [REGISTRY]}
    assert supplied(needs, Sources()) == Supply([], pulls, {})
    # What is built here is in no registry, unless its builder pushes it; the builder has it already.
    sources = Sources(builds={REGISTRY: "new"})
    assert supplied(needs, sources) == Supply([REGISTRY], {}, {})
    pushed = Sources(builds={REGISTRY: "new"}, pushed=[REGISTRY])
    assert supplied(needs, pushed) == Supply([REGISTRY], {"gpu": [REGISTRY]}, {})
    assert supplied(needs, pushed, gpu={REGISTRY: NEW}) == Supply([], pulls, {})


def test_archive_goes_before_registries_and_not_before_builds() -> None:
    named = f"{REGISTRY}@sha256:1"
    needs = {"gpu": [BUILT, REGISTRY, PULLED, named]}
    sources = Sources(builds={BUILT: "new"}, archive=True)
    assert supplied(needs, sources) == Supply([BUILT], {"gpu": [named]}, {"gpu": [REGISTRY, PULLED]})


def test_copies() -> None:
    needs = {"a": [BUILT], "b": [BUILT, PULLED], "c": [PULLED]}
    assert copies(needs, {BUILT: ["b", "x"], PULLED: ["x"]}) == [
        Copy(BUILT, "b", ["a"]),
        Copy(PULLED, "x", ["b", "c"]),
    ]
    assert copies(needs, {BUILT: ["a", "b"]}) == []
    assert copies({"a": ["x@sha256:1"]}, {"x@sha256:1": ["b"]}) == []


def runtime(python: str = "3.12.3", ray: str = "2.60.0", image: str = "x", problem: str = "") -> Runtime:
    return Runtime(image, python, ray, problem)


def test_answers_of_images() -> None:
    assert Runtime.of("x", 0, 'a banner\n{"python": "3.12.3", "ray": "2.60.0"}\n', "warning") == runtime()
    assert Runtime.of("x", 127, "", "docker: x\nexec: python3: not found\n").problem == (
        "its python3 does not run: exec: python3: not found"
    )
    assert Runtime.of("x", 1, "", "").problem == "its python3 does not run: exit code 1"
    assert Runtime.of("x", 0, "[]", "").problem == "its python3 does not run: []"


def test_images_without_tokens_are_refused() -> None:
    for version in ("2.51.2", "1.99.0", "2.9.3"):
        assert runtime(ray=version).incompatible == (
            f"it has Ray {version}, which has no tokens: use an image with Ray 2.52 or later"
        )
    for version in ("2.52.0", "2.60.0", "3.0.0.dev0", "unknown"):
        assert runtime(ray=version).incompatible == ""
    assert runtime(ray="").incompatible == "Ray is not installed for its python3"
    assert runtime(problem="silent").incompatible == "silent"


def test_all_nodes_have_the_versions_of_the_head() -> None:
    fits = {"head": [runtime()], "a": [runtime(), runtime(image="y")]}
    assert runtime_problems(fits, "head") == {}
    differs = {"a": [runtime(), runtime("3.12.4", image="y")], "head": [runtime()], "b": [runtime(ray="2.61.0")]}
    assert runtime_problems(differs, "head") == {
        "a": "the image y: it has Python 3.12.4, and the head's image on head 3.12.3: Ray needs the same on all nodes",
        "b": "the image x: it has Ray 2.61.0, and the head's image on head 2.60.0: Ray needs the same on all nodes",
    }
    # A head without Ray is the problem, and not all others.
    assert list(runtime_problems({"head": [runtime(ray="")], "a": [runtime()]}, "head")) == ["head"]
    assert runtime_problems({"a": [runtime()], "b": [runtime("3.11.2")]}, "head") == {}
