"""An app whose handlers request the signal URL that they are given, wherever they run."""

from __future__ import annotations

import headway as hw

app = hw.App("memory://")


@app.job(lane="urls")
async def in_loop(job: hw.Job) -> str | None:
    return job.signal_url


@app.job(lane="urls")
def in_thread(job: hw.Job) -> str | None:
    return job.signal_url


@app.job(lane="urls", processes=True)
def in_process(job: hw.Job) -> str | None:
    return job.signal_url
