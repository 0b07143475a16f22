# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.stage`: stage items one by one with `argus stage` in a node, and report the results.

Documented in plugins/modules/stage.py. `argus stage` validates the options of items. An item with files of the
controller is announced first; if the answer has files_needed, `stage_with_files` sends it again with the files.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, size_text
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.files import file_sha256
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.git import Git
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.manifest import Status, item_name
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.options import StagingError, Verify
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.source_tree import Opener, opener_sha256
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.upload import UploadFile
from ansible_collections.argus.verl.plugins.modules.stage import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.controller_files import (
    MAX_CODE_FILES,
    controller_patterns,
    source_files,
    upload_of,
    with_hashes,
)
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import ProgramError, unreachable_text
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report
from ansible_collections.argus.verl.plugins.plugin_utils.snapshot_source import Sources
from ansible_collections.argus.verl.plugins.plugin_utils.staging_call import RefusedItemError, StagingAction

display = Display()
HEADER = ("kind", "name", "status", "path")
# By kind, the option that has its items; kinds are staged in this order.
OPTION_OF_KIND = {"model": "models", "dataset": "datasets", "snapshot": "snapshots", "user_code": "user_code"}


class ActionModule(StagingAction):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        self.task_arguments, self.variables = arguments, variables
        # YAML has dates, JSON has none.
        parsed_yaml = {kind: arguments[name] for kind, name in OPTION_OF_KIND.items()}
        items_by_kind: dict[str, list[Any]] = json.loads(json.dumps(parsed_yaml, default=str))
        # Snapshots can be staged without a running node.
        only_running_node = any(items for kind, items in items_by_kind.items() if kind != "snapshot")
        # All items are validated before the first is staged, but user code has no options: its items are local paths.
        items_to_check = {kind: items for kind, items in items_by_kind.items() if kind != "user_code"}
        answer = self.call_verb("stage", {"items": items_to_check}, only_running_node=only_running_node)
        if not answer.accepted:
            return self.task_result([], answer.findings)
        methods: dict[str, Callable[[Any], dict[str, Any]]] = {
            "model": self.stage_model, "dataset": self.stage_dataset,
            "snapshot": self.stage_snapshot, "user_code": self.stage_user_code,
        }  # fmt: skip
        items = [(kind, item) for kind, items in items_by_kind.items() for item in items]
        return self.task_result([self.try_staging(kind, methods[kind], item) for kind, item in items])

    def stage_model(self, item: Any) -> dict[str, Any]:
        return self.stage_item("model", item)

    def stage_dataset(self, item: Any) -> dict[str, Any]:
        """Stage a dataset. Its files on the controller are announced by size, then by hash, and sent if needed."""
        patterns = controller_patterns(item)
        if not patterns:
            return self.stage_item("dataset", item)
        upload = upload_of(patterns, self.inventory_dir())
        is_full = self.task_arguments["verify"] == Verify.FULL
        result = {} if is_full else self.stage_item("dataset", item, upload=asdict(upload))
        if not result or result.get("files_needed"):
            # The files are hashed only if a size or time differs or is unknown, there is no dataset, or verify is full.
            upload = with_hashes(upload)
            result = self.stage_item("dataset", item, upload=asdict(upload))
        size = f"{size_text(upload.bytes)} of {upload.label}"
        if result.get("files_needed"):
            display.display(f"{item['name']}: uploading {size}")
            return self.stage_with_files("dataset", item, *openers_and_hashes(upload.members), upload=asdict(upload))
        if self._task.check_mode and result.get("status") == Status.STAGED:
            display.display(f"{item['name']}: would upload {size}")
        return result

    def stage_user_code(self, item: Any) -> dict[str, Any]:
        """Copy a file or directory of the controller. Its files are sent only if a hash differs."""
        source = str(item)
        try:
            source_root = self._find_needle("files", source) + ("/" if source.endswith("/") else "")
        except AnsibleError:
            raise StagingError(source, "is no file or directory of this controller.", "Correct its path.") from None
        sources = dict(source_files(source_root))
        if len(sources) > MAX_CODE_FILES:
            raise StagingError(source, f"has more than {MAX_CODE_FILES} files.", "Give a directory with fewer.")
        files = [UploadFile(path, file.stat().st_size, 0, file_sha256(str(file))) for path, file in sources.items()]
        code_item = {"name": Path(source_root).name, "files": [asdict(file) for file in files]}
        result = self.stage_item("user_code", code_item, diff=self._task.diff)
        if result.get("files_needed"):
            members = {file.path: replace(file, path=str(sources[file.path])) for file in files}
            result = self.stage_with_files("user_code", code_item, *openers_and_hashes(members), diff=self._task.diff)
        previous_texts = result.pop("before", {})
        diff = [diff_of(path, text, sources[path]) for path, text in previous_texts.items() if path in sources]
        return {**result, "diff": diff}

    def stage_snapshot(self, item: Any) -> dict[str, Any]:
        """Stage a snapshot. Its files are fetched and sent only if there is no such snapshot."""
        if not isinstance(item, Mapping) or item.get("state") == "absent" or not item.get("source"):
            return self.stage_item("snapshot", item)
        with tempfile.TemporaryDirectory() as scratch:
            roots = [*filter(None, (self.node.shared_root_source, self.node.shared_root))]
            sources = Sources(self.inventory_dir(), roots, Path(scratch).resolve(), Git(item.get("ssh_key") or ""))
            locations = [item["source"], *(overlay["path"] for overlay in item.get("overlays") or [])]
            parts_with_sources = [sources.part(str(text), is_overlay=at > 0) for at, text in enumerate(locations)]
            parts = [part for part, _source in parts_with_sources]
            result = self.stage_item("snapshot", item, parts=parts)
            if not result.get("files_needed"):
                return result
            files: dict[str, Opener] = {}
            for number, (part, source) in enumerate(parts_with_sources):
                if source:
                    content = source.content()
                    part["facts"] = content.facts
                    # Prefixed with the part's number, because parts may have files of the same name.
                    files |= {f"{number}/{name}": opener for name, opener in content.files.items()}
            hashes = {name: opener_sha256(files[name]) for name in files}
            return self.stage_with_files("snapshot", item, files, hashes, parts=parts)

    def task_result(self, item_results: Sequence[dict[str, Any]], refusals: Sequence[Finding] = ()) -> Result:
        """Print the results of the items, and build the task's from them. refusals: why no item was staged at all."""
        rows = [[str(item[name]) for name in HEADER] for item in item_results]
        findings = [*refusals, *(finding for item in item_results for finding in item.pop("findings"))]
        if self.task_arguments["report"]:
            result = print_report("Staged" if item_results else None, HEADER, rows, findings)
        else:
            labels = [f"{finding.where}: " if len(item_results) > 1 else "" for finding in findings]
            pairs = zip(labels, findings, strict=True)
            lines = [f"{label}{finding.problem} {finding.remedy}".strip() for label, finding in pairs]
            is_refused = refusals or any(item["status"] == Status.REFUSED for item in item_results)
            result = {"failed": True, "msg": printable("\n".join(lines))} if is_refused else {}
        diff = [file_diff for item in item_results for file_diff in item.pop("diff", []) if item["changed"]]
        safe_findings = [{name: printable(text) for name, text in finding.as_dict().items()} for finding in findings]
        changed = any(item["changed"] for item in item_results)
        return {**result, "changed": changed, "staged": list(item_results), "findings": safe_findings, "diff": diff}

    def try_staging(self, kind: str, stage: Callable[[Any], dict[str, Any]], item: object) -> dict[str, Any]:
        """Stage an item, and return its result with findings about it. Its errors do not stop other items."""
        name = item_name(item) or "-"
        result: dict[str, Any] = {"name": name, "path": "-", "status": Status.REFUSED.value, "changed": False}
        try:
            result |= stage(item)
            findings = [Finding("", note, "", WARNING) for note in result.get("notes", [])]
        except RefusedItemError as error:
            findings = list(error.findings)
        except StagingError as error:
            findings = [error.finding]
        except OSError as error:
            # The source on the controller cannot be read.
            findings = [Finding("source", f"{error}.", "See the message.")]
        except ProgramError as error:
            findings = [Finding("", f"{error}.", "cluster_up.yml brings the cluster up")]
        except AnsibleConnectionFailure as error:
            # The result is not "unreachable", after which Ansible would run nothing more for this host.
            machine = self.node.machine or self.node.name
            findings = [Finding("", f"{unreachable_text(error, machine)}.", "Then run it again")]
        where = f"{kind} {result['name']}"
        return {**result, "kind": kind, "findings": [finding_for_item(where, finding) for finding in findings]}

    def inventory_dir(self) -> Path:
        """The directory where relative sources begin: the inventory's, or the current one without an inventory."""
        return Path(str(self.variables.get("inventory_dir") or Path.cwd()))


def openers_and_hashes(files: Mapping[str, UploadFile]) -> tuple[dict[str, Opener], dict[str, str]]:
    """The arguments `files` and `hashes` of `stage_with_files`; the hashes are those of the announced files."""

    def opener(path: str) -> Opener:
        return lambda: Path(path).open("rb")

    openers = {name: opener(file.path) for name, file in files.items()}
    return openers, {name: file.sha256 for name, file in files.items()}


def finding_for_item(where: str, finding: Finding) -> Finding:
    """The same finding about the item: the place inside of the item goes before the problem."""
    problem = f"{finding.where}: {finding.problem}" if finding.where else finding.problem
    return Finding(where, problem, finding.remedy, finding.severity)


def diff_of(path: str, before: str, file: Path) -> dict[str, str]:
    after = file.read_text(encoding="utf-8", errors="replace")
    return {"before_header": path, "before": before, "after_header": str(file), "after": after}
