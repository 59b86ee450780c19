"""What keeps the requests of `field_service` from being dealt with, where it is configured."""

from __future__ import annotations

from pathlib import Path

from headway.cli.directory import directory_url
from headway.cli.doctor.finding import Finding, problem, warning, well
from headway.cli.extras import needs_extra
from headway.cli.settings import Settings
from headway.core.errors import StoreError

SUBJECT = "field_service"


async def look_at_field_service(settings: Settings, store_url: str) -> list[Finding]:
    """Return findings; nothing is written, and no table is migrated.

    Args:
        settings: of the session; nothing is looked at without a table [field_service].
        store_url: where the jobs are; the directory is beside it unless the settings say where.

    Returns:
        What was found.

    Raises:
        InvalidValue: a setting of the system or its providers is unusable.
    """
    if not settings.field_service:
        return []
    with needs_extra("systems"):
        from headway.systems.directory.database import Directory  # noqa: PLC0415
        from headway.systems.field_service.doctor import look_over_system  # noqa: PLC0415
        from headway.systems.field_service.settings import read_settings  # noqa: PLC0415
        from headway.systems.telephony.settings import read_exchange  # noqa: PLC0415
    url = directory_url(settings, store_url)
    if _is_missing(url):
        hint = "headway serve --system field_service makes it"
        return [warning(SUBJECT, "there is no directory yet", hint)]
    exchange = read_exchange(settings.telephony)
    directory = Directory(url)
    try:
        await directory.open()
        found = await look_over_system(directory, read_settings(settings.field_service, exchange))
    except StoreError as error:
        return [problem(SUBJECT, error.message, error.hint)]
    finally:
        await directory.close()
        await exchange.close()
    findings = [warning(one.subject, one.found, one.hint) for one in found]
    return findings or [well(SUBJECT, "technicians and dispatchers can be reached")]


def _is_missing(url: str) -> bool:
    place = url.removeprefix("sqlite:///")
    return place != url and not Path(place).exists()
