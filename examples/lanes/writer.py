"""The `Writer` protocol for generated texts; the default extracts sentences by word frequency."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module
from typing import Protocol, cast

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"[^\W\d_]{4,}")


class Writer(Protocol):
    """Writes texts."""

    async def write(self, task: str, material: str, *, sentences: int) -> str:
        """Write a text.

        Args:
            task: The task, in one sentence.
            material: The source text, one paragraph per line.
            sentences: Maximum number of sentences.
        """
        ...


class PlainWriter:
    """Picks the sentences with the most frequent words of the material; calls no service."""

    async def write(self, task: str, material: str, *, sentences: int) -> str:
        """Return a selection of the material's sentences, in their order."""
        del task  # counting words cannot follow a task
        found = [
            one
            for line in material.splitlines()
            for one in _SENTENCE.split(line.strip())
            if one.strip()
        ]
        common = Counter(word.lower() for word in _WORD.findall(material))

        def weight(place: int) -> tuple[float, int]:
            words = _WORD.findall(found[place])
            total = sum(common[word.lower()] for word in words)
            return (-total / (len(words) + 2), place)

        best = sorted(sorted(range(len(found)), key=weight)[:sentences])
        return " ".join(found[place] for place in best)


def find_writer(target: str) -> Writer:
    """Return a writer.

    Args:
        target: `module:name` of a function that returns a writer; "" for the plain one.
    """
    if not target:
        return PlainWriter()
    module, _, name = target.partition(":")
    return cast("Writer", getattr(import_module(module), name)())
