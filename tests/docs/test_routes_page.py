"""The commands of the page about routes, run as they are written there, beside a copy of the examples."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "pipeline" / "routes.md"
FENCE = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
Run = Callable[..., str]


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_section_to_try_works_by_copy_and_paste(shell: Run) -> None:
    shutil.copytree(ROOT / "examples", "examples", ignore=shutil.ignore_patterns(".penstock", "__pycache__"))
    section = PAGE.read_text(encoding="utf-8").partition("\n## Try it\n")[2].partition("\n## ")[0]
    prepare, go, down = FENCE.findall(section)
    shell("sh", "-e", given=prepare)
    said = shell("sh", "-e", given=go)
    (large,) = [line for line in said.splitlines() if "com.shop.order.placed" in line]
    assert '"reviewer":"clerk"' in large
    assert re.search(r"^no-message +- +1 ", said, re.MULTILINE)
    assert shell("sh", "-e", given=down) == ""
