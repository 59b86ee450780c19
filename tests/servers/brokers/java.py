"""Java programs: their jars from Maven Central, fetched once per user."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.process import ServiceMissing, program

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_FETCH_LIMIT = 900.0  # seconds; a cold cache takes one minute on a quick network
_OLDEST = 17


class JavaMissing(ServiceMissing):
    """Java is missing or too old; tests that need it are skipped on every machine."""


def java() -> Path:
    """Return the `java` program.

    Raises:
        JavaMissing: Java is not installed, or is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = program(str(Path(home) / "bin"), "java") if home else None
    found = found or program(None, "java")
    if found is None:
        message = f"there is no Java: install a JRE, {_OLDEST} or newer"
        raise JavaMissing(message)
    printed = subprocess.run(
        [str(found), "-XshowSettings:properties", "-version"],
        check=False,
        capture_output=True,
        text=True,
    ).stderr
    versions = [line for line in printed.splitlines() if "java.specification.version" in line]
    version = versions[0].split("=")[1].strip() if versions else "unknown"
    if not version.isdigit() or int(version) < _OLDEST:
        message = f"{found} is Java {version}, not {_OLDEST} or newer"
        raise JavaMissing(message)
    return found


def jars(name: str) -> Path:
    """Return the folder with the jars of `NAME.pom.xml`, next to this file; fetch them if needed.

    They are cached by the pom's content, under `~/.cache/headway/brokers`.

    Raises:
        ServiceMissing: they are not cached, and Maven is missing or cannot fetch them.
    """
    pom = Path(__file__).with_name(f"{name}.pom.xml")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headway/brokers"
    folder = cache / f"{name}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(pom, folder)
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    maven = program(None, "mvn")
    if maven is None:
        message = f"there is no mvn to fetch the jars of {pom.name}: install Maven"
        raise ServiceMissing(message)
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [str(maven), "-q", "-B", "-f", str(pom), _COPY, f"-DoutputDirectory={partial}"]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=_FETCH_LIMIT
    )
    if done.returncode or not partial.exists():
        message = f"mvn could not fetch the jars of {pom.name}: {done.stdout[-2000:]}"
        raise ServiceMissing(message)
    partial.rename(folder)
