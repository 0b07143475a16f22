from __future__ import annotations

from ansible_collections.argus.verl.plugins.plugin_utils.task_errors import NAMED_HOSTS, names, summary

NOTHING = dict.fromkeys(("ok", "changed", "unreachable", "failures", "skipped", "rescued", "ignored"), 0)


def test_all_is_well() -> None:
    hosts = {"a": {**NOTHING, "ok": 3, "changed": 2, "skipped": 4}, "b": {**NOTHING, "ok": 1}}
    assert summary(hosts, {}, False, 100) == ("Done: 2 hosts  ok=4 changed=2", "COLOR_CHANGED")
    assert summary(hosts, {}, True, 100)[0] == "Checked: 2 hosts  ok=4 changed=2"
    assert summary({"b": hosts["b"]}, {}, False, 100) == ("Done: 1 host  ok=1 changed=0", "COLOR_OK")


def test_one_host_failed() -> None:
    failures = {("failed", "Stop"): ["a"]}
    bad, good = {**NOTHING, "failures": 1}, {**NOTHING, "ok": 2, "rescued": 1, "ignored": 3}
    assert summary({"a": bad}, failures, False, 100) == ("Failed: a  changed=0 failed=1", "COLOR_ERROR")
    line = "Failed: 1 of 2 hosts  ok=2 changed=0 failed=1 rescued=1 ignored=3"
    assert summary({"a": bad, "b": good}, failures, False, 100)[0] == line


def test_several_hosts_failed() -> None:
    failures = {("failed", "Stop"): ["a", "b", "a"], ("unreachable", "Stop"): ["c"]}
    hosts = {"a": {**NOTHING, "failures": 1}, "b": {**NOTHING, "failures": 1}, "c": {**NOTHING, "unreachable": 1}}
    assert summary(hosts, failures, False, 100)[0].splitlines() == [
        "RESULT       TASK  HOSTS",
        "failed       Stop  a, b",
        "unreachable  Stop  c",
        "Failed: 3 of 3 hosts  changed=0 unreachable=1 failed=2",
    ]


def test_not_all_hosts_are_named() -> None:
    hosts = [f"w{number}" for number in range(NAMED_HOSTS + 1)]
    assert names(hosts[:-1]) == ", ".join(hosts[:-1])
    assert names(hosts) == f"{', '.join(hosts[:-1])} and 1 more"
