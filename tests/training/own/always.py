"""Goes below the tool of docs/recipes.md: the tiny model never asks for one, so this finds a call in each answer."""

from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser


@ToolParser.register("always")
class Always(ToolParser):
    async def extract_tool_calls(self, responses_ids, tools=None):
        return "", [FunctionCall(name="add", arguments='{"a": 20, "b": 22}')]
