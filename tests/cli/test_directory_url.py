"""Where the systems keep their directory if the settings do not say."""

from __future__ import annotations

import pytest

from headway.cli.directory import directory_url
from headway.cli.settings import Settings

POSTGRES = "postgresql://user@db.internal/jobs"


@pytest.mark.parametrize(
    ("store", "directory"),
    [
        ("sqlite:////srv/headway.db", "sqlite:////srv/headway-directory.db"),
        ("sqlite:////srv/headway.db?busy=5s", "sqlite:////srv/headway-directory.db"),
        ("sqlite:////srv/jobs", "sqlite:////srv/jobs-directory"),
        ("redis://cache.internal/3", "sqlite:///headway-directory.db"),
        ("memory://", "sqlite:///headway-directory.db"),
        (f"{POSTGRES}?namespace=blue", POSTGRES),
        (f"{POSTGRES}?namespace=blue&pooled=on&listen=off", f"{POSTGRES}?pooled=on"),
    ],
)
def test_directory_is_beside_the_store(store: str, directory: str) -> None:
    assert directory_url(Settings(), store) == directory


def test_settings_say_where_the_directory_is() -> None:
    settings = Settings(directory="sqlite:////var/people.db")
    assert directory_url(settings, "sqlite:////srv/headway.db") == "sqlite:////var/people.db"
