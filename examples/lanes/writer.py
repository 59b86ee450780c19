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
        """Writes a text.

        Args:
            task: what is wanted, in a sentence.
            material: what it is to be made of, a paragraph a line.
            sentences: at most so many.

        Returns:
            The text.
        """
        ...


class PlainWriter:
    """Picks the sentences with the most frequent words of the material; calls no service."""

    async def write(self, task: str, material: str, *, sentences: int) -> str:
        """Writes a text of the material's own sentences, in their order."""
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
    """The writer that the environment names.

    Args:
        target: `module:name` of something that makes a writer; empty for the plain one.

    Returns:
        A writer.
    """
    if not target:
        return PlainWriter()
    module, _, name = target.partition(":")
    return cast("Writer", getattr(import_module(module), name)())
