from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.task_errors import OUTPUT_LINES, VALUE_LENGTH, error_text

OTHER = "ansible.builtin.uri"
OURS = "argus.verl.machine_state"


def lines(result: dict[str, Any], action: str = OTHER, **more: str) -> list[str]:
    return error_text(result, action, **more).split("\n")


def test_our_modules_show_their_message_only() -> None:
    assert lines({"msg": "no room", "state": "FAILED", "stderr": "x"}, OURS) == ["no room"]


def test_a_crash_of_our_modules_shows_what_was_printed() -> None:
    crashed = {
        "msg": "MODULE FAILURE: No start of json char found",
        "module_stdout": "",
        "module_stderr": "a\nb",
        "rc": 1,
    }
    assert lines(crashed, OURS) == [
        "the module ended without a result",
        "  rc: 1",
        "  module_stderr:",
        "    a",
        "    b",
        "  (-vvv shows its traceback)",
    ]


def test_the_short_values_of_other_modules() -> None:
    result = {
        "msg": "no answer", "status": 503, "url": "http://x", "_ansible_no_log": False, "ansible_facts": {},
        "cmd": ["ls", "a b"], "none": None, "changed": False, "item": "i", "invocation": {"module_args": {}},
    }  # fmt: skip
    assert lines(result) == ["no answer", "  cmd: ls 'a b'", "  status: 503", "  url: http://x"]


@pytest.mark.parametrize("more", [{"text": "x" * (VALUE_LENGTH + 1)}, {"nested": {"a": 1}}, {"nested": [{"a": 1}]}])
def test_what_is_not_shown_is_said(more: dict[str, Any]) -> None:
    assert lines({"msg": "m", **more}) == ["m", "  (-v shows the whole result)"]


def test_the_longest_value_that_is_shown() -> None:
    assert lines({"msg": "m", "text": "x" * VALUE_LENGTH}) == ["m", f"  text: {'x' * VALUE_LENGTH}"]


def test_the_end_of_an_output() -> None:
    exactly = "\n".join(map(str, range(OUTPUT_LINES)))
    assert lines({"msg": "m", "stdout": exactly})[1:3] == ["  stdout:", "    0"]
    longer = lines({"msg": "m", "stdout": f"first\n{exactly}"})
    assert longer[1:3] == [f"  stdout, the last {OUTPUT_LINES} of {OUTPUT_LINES + 1} lines:", "    0"]
    assert longer[-1] == "  (-v shows the whole result)"


def test_control_characters_do_not_reach_the_terminal() -> None:
    shown = error_text({"msg": "a\x1b]0;t\x07", "stdout": "\x1b[2Jb\x9b", "name\x1b[31m": "c\x1b[31m"}, OTHER)
    assert "\x1b" not in shown and "\x9b" not in shown and "\x07" not in shown
    assert "a\\x1b]0;t\\x07" in shown


def test_hidden_results_show_nothing() -> None:
    result = {"censored": "hidden", "msg": "s3cret", "stdout": "s3cret", "argument_errors": ["s3cret"]}
    assert "s3cret" not in error_text(result, OTHER, "Origin: s3cret:1:1", "s3cret")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Task failed: Action failed: no room", "no room"),
        ("Unexpected AnsibleActionFail error: no file", "no file"),
        ("Task failed: Module failed: boom", "Module failed: boom"),
        ("the Task failed: x", "the Task failed: x"),
    ],
)
def test_what_ansible_puts_before_a_message(message: str, expected: str) -> None:
    assert lines({"msg": message})[0] == expected


def test_where_an_unexpected_error_is() -> None:
    source = "Origin: /x/outer.yml:1:1\n\n1 a\n  ^ column 1\nOrigin: /x/inner.yml:9:30\n\nOrigin: <unknown>"
    assert lines({"msg": "Task failed: y is undefined"}, source=source) == ["y is undefined", "  at /x/inner.yml:9:30"]
    assert lines({"msg": "the module says so"}, source=source) == ["the module says so"]
    gone = {"msg": "Task failed: no route", "unreachable": True}
    assert lines(gone, source=source) == ["no route"]


def test_the_end_of_a_traceback() -> None:
    shown = lines({"msg": "Task failed: Module failed: boom"}, traceback="1\n2\n3\nZeroDivisionError: boom")
    assert shown == ["Module failed: boom", "  2", "  3", "  ZeroDivisionError: boom", "  (-vvv shows its traceback)"]


def test_no_message_at_all() -> None:
    assert lines({"msg": "", "failed_when_result": True}) == ["failed_when is true"]
    assert lines({}) == ["it failed without a message"]


def wrong(*found: str, **options: Any) -> list[str]:
    return lines(
        {
            "msg": "Validation of arguments failed",
            "argument_errors": list(found),
            "argument_spec_data": options,
            "validate_args_context": {"name": "job"},
        }
    )


@pytest.mark.parametrize(("name", "hint"), [("file", 'did you mean "files"?'), ("zzz", "Known are: files, name.")])
def test_unknown_key_of_a_variable(name: str, hint: str) -> None:
    """As ansible.module_utils.common.arg_spec puts it."""
    said = f"staging_datasets.{name}. Supported parameters include: files, name."
    shown = error_text({"msg": "x", "argument_errors": [said]}, OTHER).splitlines()[-1].strip()
    assert shown == f"staging_datasets.{name}: is unknown. {hint.rstrip('.')}"


def test_wrong_variables_of_a_role() -> None:
    boolean = (
        "argument 'job_wait' is of type str and we were unable to convert to bool: The value 'xx' is not a valid "
        "boolean. Valid booleans include: 0, 1, 'n'"
    )
    listed = "argument 'job_names' is of type str and we were unable to convert to list: x"
    missing = "missing required arguments: jobspec"
    assert wrong(boolean, listed, missing) == [
        "3 errors in the variables of role job",
        "  job_wait: 'xx' is not a boolean; give true or false",
        "  job_names: is not a list",
        "  missing required arguments: jobspec",
    ]
    assert wrong(missing)[0] == "1 error in the variables of role job"


def test_the_value_of_a_secret_variable_is_not_shown() -> None:
    error = "argument 'token' is of type str and we were unable to convert to bool: The value 's3cret' is not a valid b"
    assert wrong(error, token={"no_log": True})[1:] == ["  token: is not a boolean; give true or false"]
