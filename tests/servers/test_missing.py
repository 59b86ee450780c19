"""A missing program skips tests on a developer's machine, and fails them where all are required."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.examples.test_workers import interpreter
from tests.servers.browser import browsing


@pytest.fixture(params=["0", "1"], ids=["desk", "all must be there"])
def refused(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Return the exception raised if a program is not on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HEADWAY_REQUIRE_SERVICES", request.param)
    monkeypatch.delenv("HEADWAY_TEST_PHP", raising=False)
    return {"0": pytest.skip.Exception, "1": pytest.fail.Exception}[request.param]


async def test_page_without_a_browser(refused: type[BaseException]) -> None:
    with pytest.raises(refused, match="no chromium"):
        async with browsing():
            pass


@pytest.mark.parametrize("worker", ["worker.sh", "worker.php"])
def test_worker_without_its_interpreter(worker: str, refused: type[BaseException]) -> None:
    with pytest.raises(refused, match=r"no (bash|php)"):
        interpreter(worker)
