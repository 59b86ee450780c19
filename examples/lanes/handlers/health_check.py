"""health_check: whether the database and the mail server answer."""

from __future__ import annotations

import asyncio

import aiosmtplib

import headway as hw
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declares the type."""

    @app.job(lane="notify", retry=hw.Backoff(attempts=1), timeout="30s", expires="1m")
    async def health_check(job: hw.Job) -> dict[str, str]:
        """Asks each of them.

        Raises:
            Dead: something does not answer; the reason says what.
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
