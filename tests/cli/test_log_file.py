from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from headway.cli.logging import configure_logging
from headway.cli.settings import Settings, load_settings
from headway.core.errors import InvalidValue
from headway.runtime.log_file import LogFile

MANY = """
import logging, sys
from pathlib import Path
from headway.runtime.log_file import LogFile
handler = LogFile(Path(sys.argv[1]), size=5_000, keep=50)
logger = logging.getLogger("many")
logger.addHandler(handler)
for number in range(400):
    logger.warning("%s %d", sys.argv[2], number)
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    kept = root.handlers, root.level
    yield
    for handler in root.handlers:
        if handler not in kept[0]:
            handler.close()
    root.handlers, root.level = kept
    structlog.reset_defaults()


def test_log_file_gets_json_lines_beside_the_human_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    path = tmp_path / "headway.log"
    configure_logging(Settings(log_format="human", log_file=path))
    structlog.stdlib.get_logger("a").info("started", lane="calls")
    line = json.loads(path.read_text())
    assert (line["event"], line["lane"], line["logger"]) == ("started", "calls", "a")
    assert "started" in capfd.readouterr().err


def test_log_file_is_readable_only_by_its_owner_even_if_it_existed(tmp_path: Path):
    path = tmp_path / "headway.log"
    path.write_text("")
    path.chmod(0o644)
    configure_logging(Settings(log_file=path, log_file_size=1_000))
    for _ in range(20):
        logging.getLogger("a").warning("x" * 100)
    assert {
        one.name: one.stat().st_mode & 0o777 for one in tmp_path.glob("headway.log*")
    }.keys() >= {
        "headway.log",
        "headway.log.1",
    }
    assert all(one.stat().st_mode & 0o777 == 0o600 for one in tmp_path.glob("headway.log*"))


def test_full_log_file_is_rotated_and_only_a_maximum_is_kept(tmp_path: Path):
    path = tmp_path / "headway.log"
    configure_logging(Settings(log_file=path, log_file_size=1_000, log_file_keep=2))
    for number in range(100):
        logging.getLogger("a").warning("line %d of a log that is rotated", number)
    kept = sorted(one.name for one in tmp_path.glob("headway.log*") if one.suffix != ".lock")
    assert kept == ["headway.log", "headway.log.1", "headway.log.2"]
    assert all((tmp_path / name).stat().st_size < 1_200 for name in kept)


def test_several_processes_that_rotate_lose_no_line(tmp_path: Path):
    path = tmp_path / "headway.log"
    writers = [
        subprocess.Popen([sys.executable, "-c", MANY, str(path), name]) for name in ("a", "b", "c")
    ]
    assert [writer.wait(50) for writer in writers] == [0, 0, 0]
    lines = [
        line
        for one in tmp_path.glob("headway.log*")
        if one.suffix != ".lock"
        for line in one.read_text().splitlines()
    ]
    assert sorted(lines) == sorted(f"{name} {n}" for name in ("a", "b", "c") for n in range(400))


def test_moved_log_file_is_created_again(tmp_path: Path):
    path = tmp_path / "headway.log"
    handler = LogFile(path, size=10_000, keep=2)
    logger = logging.getLogger("moved")
    logger.addHandler(handler)
    try:
        logger.warning("first")
        os.replace(path, tmp_path / "elsewhere")
        logger.warning("second")
    finally:
        logger.removeHandler(handler)
        handler.close()
    assert path.read_text() == "second\n"


FULL = """
import logging, os, resource, sys
from pathlib import Path
from headway.runtime.log_file import LogFile

path, how = Path(sys.argv[1]), sys.argv[2]
handler = LogFile(path, size=10 if how == "rotated" else 100_000, keep=2)
logger = logging.getLogger()
logger.addHandler(handler)
logger.addHandler(logging.StreamHandler(sys.stdout))
logger.warning("first")
most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
# Less than any warning about the file needs, however short its path is.
resource.setrlimit(resource.RLIMIT_FSIZE, (20, most))
for number in range(3):
    logger.warning("%d" + "x" * 150, number)
if how == "moved":
    os.replace(path, path.with_name("elsewhere"))
logger.warning("%s", "y" * 150)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
logger.warning("last")
"""


@pytest.mark.parametrize("how", ["left", "moved", "rotated"])
def test_log_file_continues_when_its_device_has_room_again(tmp_path: Path, how: str):
    path = tmp_path / "headway.log"
    line = [sys.executable, "-c", FULL, str(path), how]
    ran = subprocess.run(line, check=True, capture_output=True, text=True)
    assert path.read_text().splitlines()[-1].endswith("last")
    assert ran.stderr == ""
    assert ran.stdout.count("headway.log cannot be written: File too large") == 1
    assert ran.stdout.splitlines()[-1] == "last"


def test_unwritable_log_file_is_refused_by_name(tmp_path: Path):
    with pytest.raises(InvalidValue, match=r"nowhere/headway\.log cannot be written"):
        configure_logging(Settings(log_file=tmp_path / "nowhere" / "headway.log"))


def test_log_file_is_a_setting(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HEADWAY_LOG_FILE", "x.log")
    monkeypatch.setenv("HEADWAY_LOG_FILE_KEEP", "7")
    settings = load_settings()
    assert (settings.log_file, settings.log_file_keep) == (Path("x.log"), 7)
    assert settings.log_file_size == 10_000_000


def test_two_processes_that_find_the_file_full_rotate_it_once(tmp_path: Path):
    path = tmp_path / "headway.log"
    handlers = [LogFile(path, size=100, keep=5) for _ in range(2)]
    record = logging.LogRecord("a", logging.WARNING, "", 0, "x" * 200, None, None)
    handlers[0].emit(record)
    assert [handler.shouldRollover(record) for handler in handlers] == [True, True]
    for handler in handlers:
        handler.doRollover()
        handler.close()
    assert path.read_text() == ""
    assert not (tmp_path / "headway.log.2").exists()
