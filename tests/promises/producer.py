"""Enqueues jobs into a file, and prints each id once it is acknowledged; meant to be killed."""

from __future__ import annotations

import asyncio
import sys

from headway.core.job import NewJob, derived_id
from headway.stores import open_store


async def produce(url: str) -> None:
    store = open_store(url)
    for number in range(100_000):
        jobs = [
            NewJob(id=derived_id("promise", number, place), kind="noop", key=f"{number}-{place}")
            for place in range(3)
        ]
        await store.enqueue(jobs)
        print("\n".join(job.id for job in jobs), flush=True)  # noqa: T201  (how it reports)


if __name__ == "__main__":
    asyncio.run(produce(sys.argv[1]))
