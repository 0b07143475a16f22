from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from argus.checks.child import lines_of, run_program

LIMITS = (20, 1 << 30)


def test_what_a_program_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = "print('noise'); say(a=question['x'], b=os.environ['MINE']); sys.exit(3)"
    answer = run_program(program, {"x": [1, "é"]}, {"MINE": "yes"}, *LIMITS)
    assert (answer.lines, answer.status) == (({"a": [1, "é"], "b": "yes"},), 3)
    # The current directory is not searched.
    (tmp_path / "shadow.py").write_text("x = 1")
    monkeypatch.chdir(tmp_path)
    answer = run_program("import shadow; say(x=1)", {}, {}, *LIMITS)
    assert (answer.lines, answer.status) == ((), 1)


def test_memory_is_limited() -> None:
    program = "bytearray(1 << 28); say(a=1); bytearray(2 << 30); say(a=2)"
    assert run_program(program, {}, {}, *LIMITS).lines == ({"a": 1},)


# The program goes on only when the process that left has written its number.
ESCAPE = """
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        say(pid=os.getpid())
        os.close(write)
        import time; time.sleep(60)
    os._exit(0)
os.close(write)
os.read(read, 1)
"""


@pytest.mark.parametrize(("end", "seconds", "status"), [("", 60, 0), ("import time; time.sleep(600)", 2, None)])
def test_processes_that_leave_the_session_end_as_well(end: str, seconds: int, status: int | None) -> None:
    answer = run_program(ESCAPE + end, {}, {}, seconds, 1 << 30)
    (line,) = answer.lines
    assert answer.status == status
    for _attempt in range(100):
        try:
            state = Path(f"/proc/{line['pid']}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(0.05)
    os.kill(line["pid"], signal.SIGKILL)
    pytest.fail("it goes on")


def test_an_answer_of_a_hostile_program() -> None:
    assert lines_of(b'{"a": 1}\n[1]\n"x"\n{"b": \n' + b"[" * 100_000 + b'\n{"c": 2}') == ({"a": 1}, {"c": 2})
    flood = "import itertools\nfor _n in range(200): answer.write('{\"x\": \"' + 'y' * 20000 + '\"}\\n')"
    answer = run_program(flood, {}, {}, *LIMITS)
    assert 40 < len(answer.lines) < 60
