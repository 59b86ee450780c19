"""The installed package is complete, and the required checks run every test."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import headway

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "src" / "headway"
NAMES = ("dev", "demo")


def test_every_data_file_is_part_of_the_package() -> None:
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


def test_demo_requirements_are_a_subset_of_all_others_with_hashes() -> None:
    texts = [(REPOSITORY / "requirements" / f"{name}.txt").read_text("utf-8") for name in NAMES]
    whole, demo = (dict(re.findall(r"^([\w.-]+)\S*?==(\S+)", text, re.MULTILINE)) for text in texts)
    assert set(demo.items()) < set(whole.items())
    assert len(demo) > 50
    for text in texts:
        assert "://" not in text
        pins = re.findall(r"^\S+==", text, re.MULTILINE)
        assert len(re.findall(r"^\S+==.* \\\n    --hash=", text, re.MULTILINE)) == len(pins)


def newly_loaded(code: str) -> set[str]:
    """Return the modules that a new interpreter loads to run the code."""
    program = f"""
import json, sys
before = set(sys.modules)
{code}
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr))


def test_importing_the_package_loads_none_of_its_parts() -> None:
    loaded = newly_loaded("import headway")
    assert {name for name in loaded if name.startswith("headway")} == {"headway"}
    assert {name.split(".")[0] for name in loaded} <= {"headway", *sys.stdlib_module_names}
    assert loaded.isdisjoint({"asyncio", "dataclasses", "logging", "ssl"})


def test_help_of_the_command_loads_no_command_and_no_engine() -> None:
    loaded = newly_loaded("from headway.cli.main import call; call(['--help'])")
    own = {name for name in loaded if name.startswith("headway")}
    assert "headway.cli.main" in own
    assert {
        name
        for name in own
        if not name.startswith(("headway.cli", "headway.core.errors"))
        and name not in {"headway", "headway.core"}
    } == set()
    assert {name for name in own if name.startswith("headway.cli.commands")} == set()
    heavy = {"anyio", "apsw", "asyncio", "fastapi", "httpx", "matplotlib", "numpy", "psycopg"}
    heavy |= {"pydantic", "pydantic_settings", "rich", "sqlalchemy", "structlog", "uvicorn"}
    assert loaded & heavy == set()


def test_each_public_name_comes_from_where_type_checkers_find_it() -> None:
    tree = ast.parse(Path(headway.__file__).read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == headway._MODULES
    assert sorted(seen) == headway.__all__
    assert set(dir(headway)) >= set(headway.__all__)
    assert not hasattr(headway, "Nothing")


def test_required_and_deep_tests_together_run_every_test_once() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text("utf-8")
    verbs = re.findall(r"^make ([\w-]+)$", script, re.MULTILINE)
    assert verbs == ["test", "test-slow", "check"]
    # Without the variables passed to the `make` that runs the tests.
    commands = subprocess.check_output(
        ["make", "-n", *verbs[:2], "test-deep", "MAKEFLAGS=", "ARGS="], text=True, cwd=REPOSITORY
    )
    chosen = [line for line in commands.splitlines() if "-m pytest" in line]
    # Each test is either slow or not, and deep tests are also slow. The rest of the line is equal.
    parts = ["not slow", "slow and not deep", "deep"]
    assert re.findall('-m "(.*)"', "\n".join(chosen[:3])) == parts
    assert len({re.sub('-m "[^"]*" *$', "", line) for line in chosen[:3]}) == 1
