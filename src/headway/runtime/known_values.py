"""The values that the names of one job may be made of."""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.naming import check_name, placeholders, resolve


class KnownValues:
    """The values that a job's names may be made of."""

    __slots__ = ("kind", "lane", "tenant", "values")

    def __init__(self, kind: str, lane: str, values: Mapping[str, object]) -> None:
        self.kind = kind
        self.lane = lane
        self.tenant = ""
        self.values = values

    def all(self) -> Mapping[str, object]:
        """The arguments, with `tenant`, `lane` and `kind` among them."""
        return {**self.values, "tenant": self.tenant, "lane": self.lane, "kind": self.kind}

    def take(
        self, what: str, template: str | None, given: str | None, *, empty: bool = False
    ) -> str | None:
        """The name that was given, else the template filled.

        Args:
            what: what the name names; a tenant is known from then on.
            template: from the kind; None for none.
            given: by the caller; None for none.
            empty: whether the empty name is allowed.

        Returns:
            The name; None for none.

        Raises:
            InvalidValue: it is no name.
        """
        if given is not None:
            name = check_name(what, given, empty=empty)
        elif template is None or not placeholders(template):
            name = template
        else:
            name = resolve(template, self.all(), what=what)
        if what == "tenant":
            self.tenant = name or ""
        return name
