# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters about images: they read what the roles preflight and ray_image have registered on machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import under_root
from ansible_collections.argus.verl.plugins.module_utils.cluster import images
from ansible_collections.argus.verl.plugins.module_utils.cluster.actions import ActionKind, PlannedNode
from ansible_collections.argus.verl.plugins.module_utils.cluster.attendance import task_problem
from ansible_collections.argus.verl.plugins.module_utils.cluster.changes import machine_work
from ansible_collections.argus.verl.plugins.module_utils.cluster.image_builds import BuildError, ImageBuild, inputs_hash
from ansible_collections.argus.verl.plugins.module_utils.cluster.images import Runtime, Sources
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import HostVars, machine_name
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.plugin_utils.images import sources_of

# The facts of the roles that are read.
PREFLIGHT = "__preflight"
BUILDS = "__preflight_image_builds"
PLAN = "__ray_node_plan"
BUILT = "__ray_image_built"
PULLED = "__ray_image_pulled"
LOADED = "__ray_image_loaded"
ANSWERED = "__ray_image_answered"


def image_builds(given: Mapping[str, Any], by_kind: Mapping[str, str], inventory_dir: str | None) -> dict[str, Any]:
    """The builds by the names of their images, with the hashes of their inputs; the files are read here."""
    try:
        builds = {by_kind[kind]: ImageBuild.of(build, inventory_dir or ".") for kind, build in given.items()}
        return {image: {**asdict(build), "inputs": inputs_hash(build)} for image, build in builds.items()}
    except BuildError as error:
        raise AnsibleFilterError(str(error)) from error
    except (KeyError, AttributeError, TypeError) as error:
        raise AnsibleFilterError("cluster_image_builds is not as it should be: run validate.yml") from error


def probed(hosts: Sequence[str], hostvars: HostVars) -> dict[str, Machine]:
    answers = {host: (hostvars[host].get(PREFLIGHT) or {}).get("machine") for host in hosts}
    return {host: Machine.from_json(answer) for host, answer in answers.items() if answer}


def starting(placed: Mapping[str, Sequence[str]], hostvars: HostVars) -> dict[str, list[PlannedNode]]:
    """The nodes that this run starts, by machine."""
    found: dict[str, list[PlannedNode]] = {}
    for host, nodes in placed.items():
        plans = [hostvars[node].get(PLAN) for node in nodes]
        known = [PlannedNode.from_json(plan) for plan in plans if plan and not plan.get("absent")]
        if begun := [plan for plan in known if plan.container and plan.action.kind != ActionKind.KEEP]:
            found[host] = begun
    return found


def image_supply(
    placed: Mapping[str, Sequence[str]], hostvars: HostVars, head: str, archive: Mapping[str, Any]
) -> dict[str, Any]:
    """What machines lack and where they get it, and the images whose versions are compared before nodes start.

    head: the name of the head, whose image is the one that others are compared with.
    """
    begun = starting(placed, hostvars)
    if not begun:
        return {"needs": {}, "asked": {}, "build": [], "pull": {}, "archive": {}, "machine_of_head": ""}
    needs = {host: missing for host, plans in begun.items() if (missing := list(machine_work(plans).images))}
    machine_of_head = next((host for host, nodes in placed.items() if head in nodes), "")
    machines = probed([machine_of_head, *(host for host in placed if host != machine_of_head)], hostvars)
    builds = hostvars[next(iter(begun))].get(BUILDS) or {}
    decided = images.supply(needs, machines, machine_of_head, sources_of(builds, archive))
    asked = {host: list(dict.fromkeys(plan.image for plan in plans)) for host, plans in begun.items()}
    there = machines[machine_of_head].containers.get(head) if machine_of_head in machines else None
    kept = hostvars[head].get(PLAN, {}).get("action") == ActionKind.KEEP
    if kept and there:
        # The image by its id: its name may be that of a later one.
        asked[machine_of_head] = [there.image_id, *asked.get(machine_of_head, [])]
    return {"needs": needs, "asked": asked, "machine_of_head": machine_of_head, **asdict(decided)}


def results(result: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    """The results of a loop, by the image of each item."""
    found = {}
    for each in (result or {}).get("results") or ():
        item = each.get("item")
        found[str(item["image"]) if isinstance(item, Mapping) else str(item)] = each
    return found


def obtained(supply: Mapping[str, Any], hostvars: HostVars) -> dict[str, list[str]]:
    """The machines that have each image by now, that of the head first."""
    hosts, machine_of_head = list(hostvars), supply["machine_of_head"]
    any_host = next(iter(supply["needs"]), "")
    builds = hostvars[any_host].get(BUILDS) or {} if any_host else {}
    sources = sources_of(builds, {})
    there: dict[str, list[str]] = {}
    machines = probed([host for host in hosts if (hostvars[host].get(PREFLIGHT) or {}).get("machine")], hostvars)
    for image in dict.fromkeys(image for missing in supply["needs"].values() for image in missing):
        found = images.holders(image, machines, sources)
        if image in results(hostvars[any_host].get(BUILT)):
            found.append(machine_of_head)
        for host in supply["needs"]:
            own = hostvars[host]
            if is_pulled(results(own.get(PULLED)).get(image), image, sources) or succeeded(own.get(LOADED), image):
                found.append(host)
        there[image] = sorted(dict.fromkeys(found), key=lambda host: host != machine_of_head)
    return there


def is_pulled(result: Mapping[str, Any] | None, image: str, sources: Sources) -> bool:
    if not result or task_problem(result):
        return False
    labels = result.get("labels") or {}
    return sources.builds.get(image) in (None, labels.get(images.INPUTS_LABEL))


def succeeded(result: Mapping[str, Any] | None, image: str) -> bool:
    found = results(result).get(image)
    return bool(found) and not task_problem(found)


def image_copies(supply: Mapping[str, Any], hostvars: HostVars) -> list[dict[str, Any]]:
    there = obtained(supply, hostvars)
    # What comes from an archive is not copied.
    needs = {
        host: [image for image in missing if image not in supply["archive"].get(host, ())]
        for host, missing in supply["needs"].items()
    }
    return [asdict(copy) for copy in images.copies(needs, there)]


def image_loads(
    host: str, supply: Mapping[str, Any], saved: Mapping[str, Any], archive: Mapping[str, Any], shared_root: str
) -> list[dict[str, Any]]:
    """The files that a machine loads: from other machines, and from the archive of the inventory."""
    found = []
    for each in saved.get("results") or ():
        targets = list(each["item"]["targets"])
        if host in targets and not task_problem(each):
            known = {name: each[name] for name in ("path", "sha256", "id")}
            found.append({"image": each["item"]["image"], **known, "below": True, **numbered(host, targets)})
    for image in supply["archive"].get(host, ()):
        own = {"image": image, "path": archive["path"], "sha256": archive["sha256"], "id": ""}
        targets = [other for other, several in supply["archive"].items() if image in several]
        found.append({**own, "below": under_root(str(archive["path"]), shared_root), **numbered(host, targets)})
    return found


def numbered(host: str, targets: Sequence[str]) -> dict[str, int]:
    return {"number": targets.index(host) + 1, "count": len(targets)}


def image_problems(supply: Mapping[str, Any], hostvars: HostVars, saved: Mapping[str, Any]) -> dict[str, str]:
    """Why nodes of a machine cannot start, by machine: an image that it does not have, or one that does not fit."""
    there, head = obtained(supply, hostvars), supply["machine_of_head"]
    found: dict[str, str] = {}
    for host, missing in supply["needs"].items():
        for image in missing:
            if host not in there[image]:
                found.setdefault(host, f"the image {image} is missing: {why(host, image, hostvars, saved)}")
    answers = {host: runtimes(hostvars[host].get(ANSWERED)) for host in supply["asked"]}
    name = machine_name(head, hostvars[head]) if head else ""
    wrong = images.runtime_problems({host: several for host, several in answers.items() if several}, head, name)
    return {**wrong, **found}


def why(host: str, image: str, hostvars: HostVars, saved: Mapping[str, Any]) -> str:
    own = hostvars[host]
    told = [
        task_problem(results(own.get(LOADED)).get(image)),
        task_problem(results(saved).get(image)),
        task_problem(results(own.get(PULLED)).get(image)),
        task_problem(own.get(PULLED)),
    ]
    return next(filter(None, told), "no machine of this run has it")


def runtimes(result: Mapping[str, Any] | None) -> list[Runtime]:
    asked = [each for each in (result or {}).get("results") or () if not each.get("skipped")]
    return [
        Runtime.of(
            str(each["item"]),
            int(each.get("rc", -1)),
            str(each.get("stdout", "")),
            str(each.get("stderr") or each.get("msg", "")),
        )
        for each in asked
    ]


FILTERS = {
    "image_builds": image_builds,
    "image_copies": image_copies,
    "image_loads": image_loads,
    "image_problems": image_problems,
    "image_supply": image_supply,
}
