"""What the tables of all systems in the directory have in common."""

from __future__ import annotations

from sqlalchemy import MetaData


def naming() -> MetaData:
    """Metadata whose constraints have names, so that migrations can name them too."""
    return MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
