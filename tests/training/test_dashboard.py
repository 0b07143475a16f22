"""Ray's dashboard, as a person sees it in a browser."""

from __future__ import annotations

import asyncio
import re
import shutil
from pathlib import Path

import pytest
from browser import browsed
from system import Submit, held, playbook

FIELD = "[role=dialog] input[type=password]"


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium: apt-get install chromium")
def test_who_pastes_the_token_sees_the_jobs(submit: Submit, tmp_path: Path) -> None:
    shown = playbook("cluster_status").stdout
    [(address, token)] = re.findall(r"^Dashboard: (\S+) on localhost, token in (\S+)$", shown, re.M)

    async def look(job: str) -> None:
        async with browsed(f"{address}/#/jobs") as page:
            assert job not in await page.shows("Authentication Token Required")
            await page.paste(FIELD, "0" * 64)
            assert job not in await page.shows("Invalid")
            await page.paste(FIELD, Path(token).read_text().strip())
            await page.shows(job)
            await page.picture(tmp_path / "dashboard.png")
            # The browser sends it to every port of that address.
            [cookie] = (await page.call("Network.getCookies"))["cookies"]
            assert (cookie["domain"], cookie["path"], cookie["httpOnly"]) == ("127.0.0.1", "/", True)

    with held() as job:
        asyncio.run(look(job))
