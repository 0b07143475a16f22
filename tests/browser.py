"""A real Chromium without a window, driven by the protocol of its developer tools."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

# As root, and without what a new profile does beside its page.
COMMAND = (
    *("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-port=0", "--window-size=1400,1000"),
)
SECONDS = 60


class Page:
    """The one page of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.calls = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.calls += 1
        await self.socket.send_json({"id": self.calls, "method": method, "params": parameters})
        while True:
            answer = await self.socket.receive_json(timeout=SECONDS)
            if answer.get("id") == self.calls:
                return dict(answer.get("result", {}))

    async def value(self, script: str) -> Any:
        """What a script evaluates to; None while the page loads."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return answer.get("result", {}).get("value")

    async def shows(self, text: str) -> str:
        """Wait until the page shows a text, and return all that it shows."""
        for _ in range(SECONDS * 5):
            shown = str(await self.value("document.body ? document.body.innerText : ''"))
            if text in shown:
                return shown
            await asyncio.sleep(0.2)
        raise AssertionError(f"the page does not show {text!r} within {SECONDS} s, but:\n{shown}")

    async def paste(self, selector: str, text: str) -> None:
        """Replace the text of a field, and press Enter."""
        await self.value(f"field = document.querySelector({json.dumps(selector)}); field.focus(); field.select()")
        await self.call("Input.insertText", text=text)
        key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **key)

    async def picture(self, file: Path) -> None:
        file.write_bytes(base64.b64decode((await self.call("Page.captureScreenshot"))["data"]))


@asynccontextmanager
async def browsed(address: str) -> AsyncIterator[Page]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen([*COMMAND, f"--user-data-dir={profile}", address], stderr=subprocess.DEVNULL)
        try:
            endpoint = Path(profile) / "DevToolsActivePort"
            async with asyncio.timeout(SECONDS):
                while not endpoint.exists() or not endpoint.read_text().strip():
                    await asyncio.sleep(0.1)
            tools = f"http://127.0.0.1:{endpoint.read_text().split()[0]}/json"
            async with aiohttp.ClientSession() as session, session.get(tools) as answer:
                [page] = [target for target in await answer.json() if target["type"] == "page"]
                async with session.ws_connect(page["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Page(socket)
        finally:
            browser.terminate()
            browser.wait()
