"""What is installed is whole."""

from __future__ import annotations

import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "headway"


def test_every_file_that_is_no_module_is_part_of_the_package() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["headway"]
    shipped = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    files = {
        path
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc", ".pyi"}
    }
    assert len(files) > 50
    assert {str(path.relative_to(PACKAGE)) for path in files - shipped} == set()


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    lost = {folder for folder in folders if not (folder / "__init__.py").exists()}
    assert {str(folder.relative_to(PACKAGE)) for folder in lost} == set()
