"""The first tables: technicians, where they are, users, their roles, settings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from headway.systems.directory.migrations import collated, create_records

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make them."""
    _technicians()
    _users()
    op.create_table(
        "field_settings",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.JSON, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_field_settings"),
    )


def _technicians() -> None:
    create_records(
        "field_technicians",
        sa.Column("phone", sa.String(16), nullable=False),
        sa.Column("lat", sa.Float(53), nullable=False),
        sa.Column("lon", sa.Float(53), nullable=False),
        sa.Column("skills", sa.JSON, nullable=False),
        sa.Column("on_duty", sa.Boolean, nullable=False),
        sa.Column("channel", sa.String(8), nullable=False),
        sa.Column("idle_since", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("phone", name="uq_field_technicians_phone"),
    )
    op.create_table(
        "field_places",
        sa.Column("skill", collated(128), nullable=False),
        sa.Column("cell", sa.BigInteger, nullable=False),
        sa.Column("idle_since", sa.BigInteger, nullable=False),
        sa.Column("technician_id", collated(64), nullable=False),
        sa.Column("skills", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint(
            "skill", "cell", "idle_since", "technician_id", name="pk_field_places"
        ),
        sa.ForeignKeyConstraint(
            ["technician_id"],
            ["field_technicians.id"],
            name="fk_field_places_technician_id_field_technicians",
            ondelete="CASCADE",
        ),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_field_places_technician_id_skill",
        "field_places",
        ["technician_id", "skill"],
        unique=True,
    )


def _users() -> None:
    create_records(
        "field_users",
        sa.Column("roles", sa.JSON, nullable=False),
        sa.Column("channels", sa.JSON, nullable=False),
    )
    op.create_table(
        "field_roles",
        sa.Column("role", collated(128), nullable=False),
        sa.Column("user_id", collated(64), nullable=False),
        sa.PrimaryKeyConstraint("role", "user_id", name="pk_field_roles"),
        sa.ForeignKeyConstraint(
            ["user_id"],
            ["field_users.id"],
            name="fk_field_roles_user_id_field_users",
            ondelete="CASCADE",
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_field_roles_user_id", "field_roles", ["user_id"])
