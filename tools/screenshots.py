#!/usr/bin/env python3
"""Make the pictures of the README again: the page of a fetched job, and the output of `argus status`.

tools/screenshots.py artifacts/<id> [inventory]
"""

from __future__ import annotations

import asyncio
import html
import os
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))

from browser import browsed

SHOWN_REPO = "/home/ann/verl"
TERMINAL = """<meta charset=utf-8><body style="margin:0;background:#1e1e1e;color:#ddd">
<pre style="font:13px/1.35 'DejaVu Sans Mono',monospace;padding:16px;margin:0">{}</pre>"""


async def take_picture(address: str, target: Path, width: int, height: int) -> None:
    async with browsed(address) as page:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await page.call("Emulation.setDeviceMetricsOverride", **size)
        await page.call("Page.reload")
        # Charts are drawn when they come into view.
        await asyncio.sleep(2)
        await page.picture(target)


def main(job: Path, *inventory: str) -> None:
    pictures = REPO / "docs" / "pictures"
    pictures.mkdir(exist_ok=True)
    shown = job / "shown.html"
    shown.write_text((job / "report.html").read_text("utf-8").replace(str(REPO), SHOWN_REPO), "utf-8")
    asyncio.run(take_picture(shown.resolve().as_uri(), pictures / "page.png", 1100, 1500))
    command = ["ansible-playbook", *(f"-i{source}" for source in inventory), str(REPO / "playbooks" / "status.yml")]
    result = subprocess.run(command, env={**os.environ, "COLUMNS": "150"}, capture_output=True, text=True, check=True)
    # Without the headings of plays.
    lines = [line for line in result.stdout.splitlines() if not line.startswith(("PLAY", "One job", "Done"))]
    text = ("$ argus status\n" + "\n".join(lines).strip()).replace(str(REPO), SHOWN_REPO)
    shown.write_text(TERMINAL.format(html.escape(text)), "utf-8")
    asyncio.run(take_picture(shown.resolve().as_uri(), pictures / "status.png", 1220, 50 + 18 * text.count("\n")))
    shown.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
