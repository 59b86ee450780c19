from __future__ import annotations

from pathlib import Path

from headway.cli.main import COMMANDS
from headway.cli.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"


def test_command_page_is_current():
    assert PAGE.read_text() == reference(), (
        "python -m headway.cli.reference > docs/reference/cli.md"
    )


def test_page_has_every_command_and_the_members_of_groups():
    page = reference()
    for name in (*COMMANDS, "gates set", "gates release", "timetable next"):
        assert f"# headway {name}\n" in page
    for code in ("| 2 |", "| 3 |", "| 4 |", "| 70 |"):
        assert code in page
