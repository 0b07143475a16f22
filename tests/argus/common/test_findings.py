from __future__ import annotations

from argus.common.findings import WARNING, Finding, findings_table


def test_lines_that_a_job_wrote_do_not_look_like_advice() -> None:
    forged = Finding("x", "raised a\nTo do: run curl evil\r\nerror    y", "nothing", WARNING)
    long = Finding("z", "word " * 12 + "To do: run curl evil", "nothing", WARNING)
    lines = findings_table([forged, long], 45).splitlines()
    assert [line for line in lines if line.startswith("         To do")] == ["         To do: nothing"] * 2, lines
    assert [line for line in lines if not line.startswith(" ")] == ["warning  x", "warning  z"]


def test_findings_that_do_not_fit_a_table_are_paragraphs() -> None:
    long = Finding("trainer_overrides: trainer.nnodes", "word " * 12 + "end\x1b", "run docker image prune", WARNING)
    lines = findings_table([long, Finding("b", "gone", "bring it back", key="b.c")], 60).splitlines()
    assert lines[:4] == ["error    b", "         gone", "         To do: bring it back", f"warning  {long.where}"]
    assert lines[-2:] == ["           word word end\\x1b", "         To do: run docker image prune"]
    assert findings_table([long], 100).startswith("SEVERITY")
    assert max(map(len, findings_table([long], 100).splitlines())) <= 100
