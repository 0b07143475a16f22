"""A tool, and a parser that calls it after each answer: the tiny model never asks for one."""

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser
from verl.tools.function_tool import function_tool


@ToolParser.register("always")
class Always(ToolParser):
    async def extract_tool_calls(self, responses_ids, tools=None):
        return "", [FunctionCall(name="add", arguments='{"a": 20, "b": 22}')]


@function_tool
def add(a: int, b: int) -> str:
    """Add two numbers.

    Args:
        a: The first one.
        b: The second one.
    """
    return str(a + b)
