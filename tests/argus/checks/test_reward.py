from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from checked_job import CODE, REWARD, REWARD_FILE, findings_of, keys, request, version, write

from argus.checks import reward
from argus.checks.child import parse_lines, run_program
from argus.checks.request import Facts
from argus.checks.reward import parse_call, reward_findings


def problems_of(root: Path, code: str, **changes: Any) -> list[tuple[str, str]]:
    (root / REWARD_FILE).write_text(code)
    reported = findings_of(root, **{"reward_file": f"{root}/{REWARD_FILE}", **changes})
    assert not list((root / "user/code").rglob("__pycache__"))
    return [(text.removeprefix(f"/private/{REWARD_FILE}"), level) for key, text, level in reported if "reward" in key]


MODEL = {"reward.reward_model.enable": True}
SCALE = {"reward.custom_reward_function.reward_kwargs": {"scale": 2}}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        (f"async {REWARD}", {}),
        ("class Score:\n    def __call__(self, **kwargs): ...\ncompute_score = Score()", {}),
        ("print('hello')\nimport sys; sys.stderr.write('x')\n" + REWARD, {}),
        ("compute_score = max", {}),
        (REWARD.replace("extra_info=None", "extra_info, scale"), SCALE),
        ("def compute_score(x): ...\n", {"reward.reward_manager.source": "importlib"}),
        ("def compute_score(x): ...\n", {"reward_model.reward_manager": "batch"}),
    ],
)
def test_rewards_that_verl_can_call(root: Path, text: str, settings: dict[str, Any]) -> None:
    assert problems_of(root, text, settings=settings) == []


@pytest.mark.parametrize(
    ("text", "settings", "problem"),
    [
        ("import os\ndef f(:\n", {}, ", line 2: the import fails with SyntaxError: invalid syntax"),
        ("import os\n\nimport no_such.thing\n", {}, ", line 3: imports no_such, which the workers do not have"),
        ("raise SystemExit(3)\n", {}, ", line 1: the import fails with SystemExit: 3"),
        ("import os; os._exit(4)\n", {}, ": importing it ends the process (exit status 4)"),
        ("def other(): ...\ndef third(): ...\n", {}, " has no function compute_score; it has: other, third"),
        ("compute_score = 1\n", {}, ": compute_score is of type int"),
        ("def compute_score(data_source, /, **rest): ...\n", {}, ": compute_score does not accept"),
        (REWARD, SCALE, ": compute_score does not accept"),
        (REWARD.replace("extra_info=None", "extra_info, scale"), {}, ": compute_score does not accept"),
        (REWARD, MODEL, ": compute_score does not accept what verl passes by name (data_source, solution_str, "),
        (f"async {REWARD}", {"reward.reward_manager.name": "remote"}, ": compute_score is async"),
    ],
)
def test_rewards_that_verl_cannot_call(root: Path, text: str, settings: dict[str, Any], problem: str) -> None:
    ((reported, severity),) = problems_of(root, text, settings=settings)
    assert (reported[: len(problem)], severity) == (problem, "error")


def test_a_reward_that_is_not_there_or_takes_long(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / REWARD_FILE).unlink()
    assert keys(root, reward_file=f"{root}/{REWARD_FILE}") == [("reward_fn_path", "error")]
    monkeypatch.setattr(reward, "IMPORT_TIMEOUT_SECONDS", 0.5)
    assert [severity for _problem, severity in problems_of(root, "import time; time.sleep(30)\n")] == ["warning"]


def test_the_environment_of_the_job(root: Path) -> None:
    (root / "user/code/helper.py").write_text("import os\nassert os.environ['LEVEL'] == '3'\n")
    text = f"import helper\n{REWARD}"
    ((problem, _severity),) = problems_of(root, text)
    assert "verl does not search the file's directory" in problem
    environment: dict[str, Any] = {"PYTHONPATH": f"{root}/user/code"}
    assert len(problems_of(root, text, environment=environment)) == 1
    assert problems_of(root, text, environment={**environment, "LEVEL": 3}) == []


def test_a_module(root: Path) -> None:
    for name, text in {
        "graders/__init__.py": "",
        "graders/score.py": "from .part import one\n" + REWARD,
        "graders/part.py": "one = 1\n",
        "graders/other.py": "",
        "graders/broken.py": "from .gone import one\n",
        "json/decoder.py": REWARD,
    }.items():
        (root / "user/code" / name).parent.mkdir(exist_ok=True)
        (root / "user/code" / name).write_text(text)

    def problem_of_module(name: str, module: str) -> str:
        job = {"reward_file": f"{root}/user/code/{name}", "reward_module": module}
        findings = findings_of(root, **job, environment={"PYTHONPATH": f"{root}/user/code"})
        return "".join(problem for key, problem, _severity in findings if key == "reward_fn_path")

    assert problem_of_module("graders/score.py", "graders.score") == ""
    # Loaded by its path, the same file has no package.
    assert "attempted relative import" in problem_of_module("graders/score.py", "")
    assert "has no function compute_score" in problem_of_module("graders/other.py", "graders.other")
    assert "imports graders.gone" in problem_of_module("graders/broken.py", "graders.broken")
    assert "another one has its name" in problem_of_module("json/decoder.py", "json.decoder")


# --- Calls for rows of the dataset ------------------------------------------------------------------------------------

HEAD = "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
ROWS = [
    {
        "data_source": "mine",
        "prompt": [{"role": "user", "content": "?"}],
        "reward_model": {"style": "rule", "ground_truth": str(number)},
        "extra_info": {"index": number},
    }
    for number in range(6)
]


def tried(root: Path, text: str, rows: int = 2, **changes: Any) -> tuple[list[tuple[str, str]], list[str]]:
    (root / REWARD_FILE).write_text(text)
    write(root, ROWS)
    facts, job = Facts(), {"reward_file": f"{root}/{REWARD_FILE}", **changes}
    findings = reward_findings(request(root, trial_rows=rows, **job), facts)
    assert {finding.key for finding in findings} <= {"reward_fn_path"}
    texts = [(finding.severity, finding.problem.removeprefix(f"{root}/{REWARD_FILE}")) for finding in findings]
    return texts, facts.notes


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_good_function(root: Path, kind: str) -> None:
    body = "    print('x')\n    return float(solution_str == ground_truth and data_source == 'mine')\n"
    findings, (note,) = tried(root, kind + HEAD + body)
    assert findings == [] and note.endswith("1, 1 for the ground truth; 0, 0 for an empty text")


FIRST, TWICE = "called for row 0 with the ground truth as the answer", "and in 3 more of 4 calls"


@pytest.mark.parametrize(
    ("result", "severity", "problem"),
    [
        ("{'score': 0.5, 'acc': 1}", "", ""),
        ("__import__('decimal').Decimal('0.5')", "", ""),
        ("extra_info['index']", "", ""),
        ("-float(not solution_str)", "", ""),
        ("0.0", "warning", " gives 0 for each ground truth"),
        ("None", "error", f", {FIRST}, returns a NoneType, which is not a number, {TWICE}"),
        ("{'acc': 1}", "error", f", {FIRST}, returns a dict, which is not a number, {TWICE}"),
        ("{'score': float('nan')}", "error", f", {FIRST}, returns nan, {TWICE}"),
        ("1 / len(solution_str)", "error", ", called for row 0 with an empty text as the answer, raises ZeroDivision"),
        ("__import__('os')._exit(7)", "error", " ends the process (exit status 7); 0 of 4 calls of compute_score have"),
    ],
)
def test_results(root: Path, result: str, severity: str, problem: str) -> None:
    findings, notes = tried(root, f"{HEAD}    return {result}\n")
    assert [finding[0] for finding in findings] == ([severity] if severity else [])
    assert all(problem in finding[1] for finding in findings)
    assert ("; no number for an empty text" in "".join(notes)) == (severity == "error" and "_exit" not in result)


def test_the_arguments_of_a_call(root: Path) -> None:
    text = """
import os
def compute_score(extra_info, scale, **rest):
    assert sorted(rest) == ['data_source', 'ground_truth', 'solution_str']
    return scale * extra_info['num_turns'] * float(os.environ['FACTOR'])
"""
    findings, (note,) = tried(root, text, environment={"FACTOR": "0.5"}, settings=SCALE)
    assert findings == [] and note.endswith("2, 2 for the ground truth; 2, 2 for an empty text")


def test_a_function_that_does_not_return(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "IMPORT_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(reward, "CALLS_TIMEOUT_SECONDS", 1.0)
    findings, _notes = tried(root, f"import time\n{HEAD}    return 1 if solution_str else time.sleep(60)\n")
    assert findings == [("warning", ": 1 of 4 calls of compute_score have ended within 1 s")]


def test_jobs_that_do_not_ask_for_calls(root: Path) -> None:
    for changes in ({"rows": 0}, {"reward_file": None}, {"workload": "sft", "reward_file": None}):
        assert tried(root, f"{HEAD}    raise ValueError\n", **changes) == ([], [])
    # A reward model passes more than the dataset has.
    findings, _notes = tried(root, f"{HEAD}    raise ValueError\n", settings=MODEL)
    assert [severity for severity, _problem in findings] == ["warning", "error"]


def test_answers_of_a_hostile_function(root: Path) -> None:
    good = {"row": 0, "answer": "an empty text", "seconds": 0.1, "score": 1.0}
    assert parse_call(good) is not None
    for line in ({}, {**good, "row": "0"}, {**good, "answer": 2}, {**good, "seconds": "x"}):
        assert parse_call(line) is None
    ((_severity, problem),) = tried(root, f"{HEAD}    raise ValueError('\\x1b[2Jx' + 'y' * 999)\n")[0]
    assert "\x1b" not in problem and len(problem) < 500


@pytest.mark.parametrize(
    ("name", "release", "is_known"),
    [("prime", "0.9.1", False), ("dapo", "0.9.1", True), ("limited", "0.9.1", True), ("prime", "0.8.0", True)],
)
def test_a_reward_manager_that_the_snapshot_does_not_have(root: Path, name: str, release: str, is_known: bool) -> None:
    version(root, release)
    for folder, names in (("experimental/reward_loop", ("naive", "dapo")), ("workers", ("naive", "prime"))):
        (root / CODE / "verl" / folder / "reward_manager").mkdir(parents=True)
        for kind in names:
            file = root / CODE / "verl" / folder / f"reward_manager/{kind}.py"
            file.write_text(f'@register("{kind}")\nclass Manager: ...\n@register_legacy("limited")\nclass Other: ...\n')
    expected = [] if is_known else [("reward.reward_manager.name", "error")]
    assert keys(root, settings={"reward.reward_manager.name": name}) == expected


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
    assert parse_lines(b'{"a": 1}\n[1]\n"x"\n{"b": \n' + b"[" * 100_000 + b'\n{"c": 2}') == ({"a": 1}, {"c": 2})
    flood = "import itertools\nfor _n in range(200): answer.write('{\"x\": \"' + 'y' * 20000 + '\"}\\n')"
    answer = run_program(flood, {}, {}, *LIMITS)
    assert 40 < len(answer.lines) < 60
