"""Read values in Avro and Protobuf with the official deserializers and a schema registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

import msgspec
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from headway.bridges.kafka.message import Incoming, ReadValue, read_json
from headway.bridges.kafka.settings import KafkaSettings
from headway.core.errors import InvalidValue, StoreUnavailable

Deserialize = Callable[[bytes, SerializationContext], object]


def value_reader(
    settings: KafkaSettings, registry: SchemaRegistryClient | None = None
) -> ReadValue:
    """Return the function that reads the values of messages.

    Args:
        registry: client of the schema registry (default: one for the configured URL).

    Raises:
        InvalidValue: the format requires a schema registry or a class, and it is missing.
    """
    form = settings.in_.format
    if form == "json":
        return read_json
    if registry is None:
        if settings.schema_registry is None:
            message = f"values in {form} require a schema registry"
            raise InvalidValue(message, hint="set schema_registry in the table [kafka]")
        registry = SchemaRegistryClient({"url": settings.schema_registry})
    if form == "avro":
        return _reader(_avro(registry), lambda value: value)
    return _reader(_protobuf(registry, settings.in_.message_type), _protobuf_fields)


def _avro(registry: SchemaRegistryClient) -> Deserialize:
    from confluent_kafka.schema_registry.avro import AvroDeserializer  # noqa: PLC0415  (an extra)

    made: Any = AvroDeserializer
    return cast("Deserialize", made(registry))


def _protobuf(registry: SchemaRegistryClient, message_type: str) -> Deserialize:
    from confluent_kafka.schema_registry.protobuf import (  # noqa: PLC0415  (an extra)
        ProtobufDeserializer,
    )

    module, _, name = message_type.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        text = f"message_type is {message_type!r}, which cannot be imported"
        raise InvalidValue(text, hint="name the generated class as package.module:Class") from None
    made: Any = ProtobufDeserializer
    return cast("Deserialize", made(found, {}, registry))


def _protobuf_fields(value: object) -> object:
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415  (an extra)

    found: Any = value
    return MessageToDict(found, preserving_proto_field_name=True)


def _reader(deserialize: Deserialize, fields: Callable[[object], object]) -> ReadValue:
    def read(message: Incoming) -> Mapping[str, object]:
        if not message.value:
            return {}
        context = SerializationContext(message.topic, MessageField.VALUE)
        try:
            value = fields(deserialize(message.value, context))
        except SchemaRegistryError as error:
            if error.http_status_code != 404:
                text = f"the schema registry refused: {error}"
                raise StoreUnavailable(text[:400]) from None
            text = f"the value has a schema that the registry does not know: {error}"
            raise InvalidValue(text[:400]) from None
        except Exception as error:  # noqa: BLE001  (each format's library has its own errors)
            if _is_unreachable(error):
                text = f"the schema registry cannot be reached: {error}"
                raise StoreUnavailable(text[:400]) from None
            text = f"the value cannot be deserialized: {error}"
            raise InvalidValue(text[:400]) from None
        # Types that JSON lacks (decimals, dates, bytes) become text.
        plain = msgspec.to_builtins(value, str_keys=True)
        if not isinstance(plain, dict):
            text = f"the value is a {type(plain).__name__}, not a record"
            raise InvalidValue(text)
        return cast("Mapping[str, object]", plain)

    return read


def _is_unreachable(error: Exception) -> bool:
    """Return whether the registry was unreachable; its client's HTTP library varies by version."""
    return isinstance(error, OSError) or any(
        base.__name__ == "TransportError" for base in type(error).__mro__
    )
