"""The exchange: the providers of one server or worker, by their names."""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.errors import InvalidValue
from headway.systems.telephony.texts import Texts
from headway.systems.telephony.voice import Voice


class Exchange:
    """The providers of one server or worker.

    Attributes:
        voices: who places calls, by name, in the order of the settings.
        texts: who sends messages, by name, in the order of the settings.
    """

    def __init__(self, voices: Mapping[str, Voice], texts: Mapping[str, Texts]) -> None:
        self.voices = dict(voices)
        self.texts = dict(texts)

    def voice(self, name: str) -> Voice:
        """Who places calls under this name.

        Raises:
            InvalidValue: the settings name nobody of this name.
        """
        found = self.voices.get(name)
        if found is None:
            message = f"no provider of calls is called {name!r}"
            known = ", ".join(self.voices) or "none"
            raise InvalidValue(message, hint=f"add [telephony.{name}]; there is {known}")
        return found

    def text(self, name: str | None = None) -> Texts:
        """Who sends messages: of this name, else the first one.

        Raises:
            InvalidValue: the settings name nobody.
        """
        found = next(iter(self.texts.values()), None) if name is None else self.texts.get(name)
        if found is None:
            message = (
                f"no provider of messages is called {name!r}" if name else "nobody sends texts"
            )
            raise InvalidValue(message, hint="add a table such as [telephony.twilio]")
        return found

    async def close(self) -> None:
        """Closes the connections of all."""
        for one in {
            id(each): each for each in (*self.voices.values(), *self.texts.values())
        }.values():
            await one.close()
