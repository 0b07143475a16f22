"""Pages of jobs as a person sees them, in Chromium."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Page, browsed

from argus.archive.archive import Archive
from argus.report.data import read_job
from argus.report.page import render_page

from .conftest import GRPO, RETRIED

pytestmark = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: apt-get install chromium")
# Before a page's own scripts: all that goes wrong in it, and what it asks for.
WATCH = """window.wrong = [];
for (const kind of ['error', 'unhandledrejection', 'securitypolicyviolation'])
  addEventListener(kind, event => wrong.push(kind + ': ' + (event.message || event.reason || event.violatedDirective)));
console.error = console.warn = (...words) => wrong.push(words.join(' '));"""
# The number of charts that have something drawn in colour.
DRAWN = """[...document.querySelectorAll('canvas')].filter(canvas => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  for (let at = 0; at < pixels.length; at += 4)
    if (pixels[at + 3] > 200 && Math.max(pixels[at], pixels[at + 1], pixels[at + 2])
        - Math.min(pixels[at], pixels[at + 1], pixels[at + 2]) > 60) return true;
}).length"""
LINES = "document.querySelectorAll('.u-series').length"


async def opened(browser: Page, file: Path, width: int = 1400, scheme: str = "light") -> None:
    """Show a page, and wait until its first charts are drawn."""
    await browser.call("Page.enable")
    await browser.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    await browser.call("Emulation.setDeviceMetricsOverride", **size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    await browser.call("Emulation.setEmulatedMedia", features=features)
    await browser.call("Page.navigate", url=file.as_uri())
    await browser.shows("Made ")
    await browser.value("document.querySelector('.charts')?.scrollIntoView()")
    await until(browser, "!document.querySelector('figure') || document.querySelector('canvas')")
    assert json.loads(await browser.value("JSON.stringify(wrong)")) == []
    assert await browser.value("performance.getEntriesByType('resource').length") == 0
    assert await browser.value("document.documentElement.scrollWidth") <= width


async def until(browser: Page, condition: str) -> Any:
    for _ in range(150):
        if value := await browser.value(f"!!({condition})"):
            return value
        await asyncio.sleep(0.1)
    raise AssertionError(f"never: {condition}")


def written(directory: Path, *archives: Archive) -> Path:
    file = directory / "report.html"
    file.write_text(render_page([read_job(archive) for archive in archives], 1795303200.0), encoding="utf-8")
    return file


def shown(file: Path, look: Callable[[Page], Awaitable[None]], **how: Any) -> None:
    """Open a page in a browser, look at it, and expect that nothing goes wrong in it."""

    async def run() -> None:
        async with browsed("about:blank") as browser:
            await opened(browser, file, **how)
            await look(browser)
            await browser.value("document.querySelectorAll('details').forEach(each => { each.open = true; })")
            assert json.loads(await browser.value("JSON.stringify(wrong)")) == []

    asyncio.run(run())


def test_charts_and_samples_follow_the_reader(jobs: Callable[[str], Archive], tmp_path: Path) -> None:
    archive = jobs(GRPO)
    for step, answers in ((1, ["one apple", "no digits"]), (2, ["two pears"])):
        rows = [{"score": 0.5, "input": f"question {step}", "output": answer, "gts": "4"} for answer in answers]
        archive.append(f"samples/rollouts-{step}.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    async def look(browser: Page) -> None:
        assert await until(browser, f"{DRAWN} > 5")
        count = await browser.value(LINES)
        # Each curve has a pale one below it.
        await browser.value("smoothing.value = 0.8; smoothing.dispatchEvent(new Event('input', {bubbles: true}))")
        assert await until(browser, f"{LINES} > {count}")
        await browser.value("document.querySelector('[value=time]').click()")
        await until(browser, f"{DRAWN} > 5")
        # Zoomed in one chart, all of them show the same part of the job.
        before = await browser.value("document.querySelectorAll('canvas')[1].toDataURL()")
        box = "document.querySelector('.u-over').getBoundingClientRect()"
        left, top = await browser.value(f"{box}.left + 100"), await browser.value(f"{box}.top + 50")
        for kind, x, buttons in (("Pressed", left, 1), ("Moved", left + 90, 1), ("Released", left + 90, 0)):
            place = {"x": x, "y": top, "button": "left", "buttons": buttons, "clickCount": 1}
            await browser.call("Input.dispatchMouseEvent", type=f"mouse{kind}", **place)
        await until(browser, f"document.querySelectorAll('canvas')[1].toDataURL() !== {json.dumps(before)}")
        seen = "[...document.querySelectorAll('.sample')].filter(each => each.checkVisibility()).length"
        for text, samples in (("PEARS", 1), ("question 1", 2), ("", 3)):
            await browser.value(f"search.value = '{text}'; search.dispatchEvent(new Event('input'))")
            assert await browser.value(seen) == samples

    shown(written(tmp_path, archive), look)


def test_hostile_text_is_text_on_a_dark_phone(hostile: Archive, jobs: Callable[[str], Archive], tmp_path: Path) -> None:
    async def look(browser: Page) -> None:
        assert await browser.value("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        await browser.value("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        await browser.shows("<img src=x onerror=document.title=1>\\x1b[31m\\u202e{{7*7}}")
        await until(browser, "document.querySelectorAll('canvas').length > 3")
        assert await browser.value("document.querySelectorAll('img, iframe, object, a').length") == 0
        assert await browser.value("document.title") == "3 jobs"

    shown(written(tmp_path, hostile, jobs(GRPO), jobs(RETRIED)), look, width=360, scheme="dark")
