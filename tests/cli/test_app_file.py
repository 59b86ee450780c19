from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.cli.app_file import load_app
from headway.core.errors import InvalidValue
from headway.runtime.app import App


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


ONE = "import headway as hw\napp = hw.App()\n"


def test_app_is_loaded_from_a_file_a_path_or_a_module(folder: Path):
    write(folder, "af_one.py", ONE)
    write(folder, "sub/af_two.py", "import af_beside\nimport headway as hw\nmine = hw.App()\n")
    write(folder, "sub/af_beside.py", "")
    for target in ("af_one.py", str(folder / "af_one.py"), "af_one", "af_one:app", "af_one.py:app"):
        assert isinstance(load_app(target), App)
    assert isinstance(load_app("sub/af_two.py"), App)


def test_file_in_a_package_is_imported_under_its_full_name(folder: Path):
    write(folder, "af_shop/__init__.py", "")
    write(folder, "af_shop/kinds.py", "import headway as hw\napp = hw.App()\n")
    write(folder, "af_shop/jobs.py", "from af_shop.kinds import app\n")
    assert load_app("af_shop/jobs.py") is load_app("af_shop.kinds")


LOGS = """
import logging.config
import headway as hw

app = hw.App()
logging.config.dictConfig({
    "version": 1,
    "handlers": {"out": {"class": "logging.StreamHandler", "stream": "ext://sys.stdout"}},
    "root": {"handlers": ["out"]},
})
"""


def test_app_that_configures_logging_does_not_disable_headways_loggers(folder: Path):
    write(folder, "af_logs.py", LOGS)
    code = """
import logging
from headway.cli.app_file import load_app

headways, other = logging.getLogger("headway.worker"), logging.getLogger("other")
load_app("af_logs.py")
headways.warning("seen")
other.warning("disabled as the app asked")
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"seen\n", b"")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "defines no App"),
        ("import headway as hw\na = hw.App()\nb = hw.App()\n", "defines 2 Apps"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all'"),
        ("def broken(:\n", "line 1: invalid syntax"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)\n", "SystemExit: 3"),
        ("import headway as hw\nhw.Slots('', 1)\n", "gate is empty"),
    ],
)
def test_unusable_file_is_an_error_with_its_line(
    folder: Path, text: str, said: str, request: pytest.FixtureRequest
):
    name = f"af_bad_{abs(hash(text))}.py"
    write(folder, name, text)
    with pytest.raises(InvalidValue) as caught:
        load_app(name)
    assert said in str(caught.value)
    assert name in str(caught.value)


def test_error_from_generated_code_names_the_line_of_the_file(folder: Path):
    write(folder, "af_cron.py", "import headway as hw\nhw.Cron('61 * * * *')\n")
    with pytest.raises(InvalidValue, match=r"Bad minute \(.*af_cron\.py:2\)") as caught:
        load_app("af_cron.py")
    assert "<string>" not in str(caught.value)


@pytest.mark.parametrize("target", ["nowhere.py", "./nowhere.py", "nowhere", "nowhere.jobs", ""])
def test_missing_file_is_refused(target: str):
    with pytest.raises(InvalidValue):
        load_app(target)


def test_name_that_is_not_an_app_is_refused(folder: Path):
    write(folder, "af_named.py", f"{ONE}other = 3\n")
    with pytest.raises(InvalidValue, match="other is not an App"):
        load_app("af_named.py:other")
    with pytest.raises(InvalidValue, match="gone does not exist"):
        load_app("af_named.py:gone")
