"""Files of the system outside the store: private, rotated, and named in errors."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from headway.core.errors import InvalidValue
from headway.systems.automations import folders
from headway.systems.automations.folders import Folders, log, read_settings, write_log


def test_log_is_private_json_and_is_rotated_when_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (folders.LOG_SIZE, folders.LOG_KEEP) == (10_000_000, 5)
    monkeypatch.setattr(folders, "LOG_SIZE", 2_000)
    one = Folders(root=tmp_path / "state")
    one.logs.mkdir(parents=True, mode=0o755)
    one.make()
    write_log(one)
    for number in range(300):
        log(logging.ERROR, "session failed", {"session_id": f"cron:a:{number}", "end": "status 3"})
    # The last file is the lock shared by processes that rotate at the same time.
    files = sorted(one.logs.glob("dispatcher.log*"))
    assert files.pop().suffix == ".lock"
    assert [path.name for path in files] == [
        "dispatcher.log", *(f"dispatcher.log.{number}" for number in range(1, 6))
    ]  # fmt: skip
    for path in files:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.stat().st_size < 2_300
    line = json.loads(files[0].read_text().splitlines()[-1])
    assert line["event"] == "session failed"
    assert line["level"] == "error"
    assert line["session_id"] == "cron:a:299"
    for folder in (one.root, one.logs, one.mirrors, one.work, one.artifacts):
        assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"state_dri": "x"}, "automations.state_dri: there is no such setting"),
        ({"lease": "soon"}, "automations.lease is 'soon': the duration 'soon' is not understood"),
        ({"look_each": "0ms"}, "automations.look_each is '0ms': it should be at least"),
    ],
)
def test_unusable_setting_is_named(written: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        read_settings(written)
    assert said in refused.value.message


def test_state_directory_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidValue, match=r"file.state cannot be created"):
        Folders(root=tmp_path / "file" / "state").make()
