"""health_check: checks that the database and the mail server answer."""

from __future__ import annotations

import asyncio

import aiosmtplib

import headway as hw
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="notify", retry=hw.Backoff(attempts=1), timeout="30s", expires="1m")
    async def health_check(job: hw.Job) -> dict[str, str]:
        """Check both.

        Raises:
            Dead: one of them does not answer; the reason says which.
        """
        del job
        found = {"database": await asyncio.to_thread(_database, world)}
        try:
            await world.mailer.greet()
        except (aiosmtplib.SMTPException, OSError) as error:
            found["mail"] = f"{type(error).__name__}: {error}"
        else:
            found["mail"] = "ok"
        wrong = [f"{what}: {said}" for what, said in found.items() if said != "ok"]
        if wrong:
            raise hw.Dead("; ".join(wrong))
        return found


def _database(world: World) -> str:
    with world.database.read() as db:
        return db.execute("PRAGMA quick_check(1)").fetchone()[0]
