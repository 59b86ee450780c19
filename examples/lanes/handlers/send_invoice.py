"""send_invoice: sends an invoice from the database as an attached file, with its total."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import headway as hw
from examples.lanes.world import World


def declare(app: hw.App, world: World) -> None:
    """Declare the type."""

    @app.job(lane="send_email", subject="{number}", timeout="1m")
    async def send_invoice(job: hw.Job, number: str) -> dict[str, str]:
        found = await asyncio.to_thread(_find, world, number)
        if found is None:
            reason = f"there is no invoice {number}"
            raise hw.Dead(reason)
        invoice, lines = found
        total = sum((Decimal(line["amount"]) for line in lines), Decimal(0))
        rows = [f"{line['what']:<40} {Decimal(line['amount']):>12.2f}" for line in lines]
        rows.append(f"{'Total ' + invoice['currency']:<40} {total:>12.2f}")
        message = world.mailer.message(
            invoice["email"],
            f"Invoice {number}",
            f"Please find attached the invoice {number} of {total:.2f} {invoice['currency']}.\n",
        )
        message.add_attachment("\n".join(rows) + "\n", filename=f"invoice-{number}.txt")
        return {"total": f"{total:.2f}", "message": await world.mailer.send(job, message)}


def _find(world: World, number: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    with world.database.read() as db:
        invoice = db.execute("SELECT * FROM invoice WHERE number = ?", (number,)).fetchone()
        lines = db.execute(
            "SELECT what, amount FROM invoice_line WHERE invoice = ? ORDER BY place", (number,)
        ).fetchall()
    return None if invoice is None else (dict(invoice), [dict(line) for line in lines])
