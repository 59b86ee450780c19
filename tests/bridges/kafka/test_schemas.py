"""Values in Avro and Protobuf, with the official client's in-memory registry."""

from __future__ import annotations

import datetime as dt
import sys
from decimal import Decimal
from types import ModuleType

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headway.bridges.kafka.message import Incoming
from headway.bridges.kafka.schemas import value_reader
from headway.bridges.kafka.settings import read_kafka_settings
from headway.core.errors import InvalidValue, StoreUnavailable

ORDER = """
{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "string"},
  {"name": "items", "type": {"type": "array", "items": "int"}},
  {"name": "price",
   "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
  {"name": "made", "type": {"type": "long", "logicalType": "timestamp-millis"}}
]}
"""


def settings(**of_in: str):
    return read_kafka_settings({"schema_registry": "http://127.0.0.1:9", "in": of_in})


def incoming(value: bytes | None) -> Incoming:
    return Incoming("orders", 0, 0, None, value, {}, 0)


@pytest.fixture
def registry(tmp_path: object) -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": f"mock://{id(tmp_path)}"})


def test_avro_record_is_read_with_its_schema(registry: SchemaRegistryClient) -> None:
    made = {
        "id": "a7",
        "items": [3, 4],
        "price": Decimal("12.50"),
        "made": dt.datetime(2031, 5, 4, 9, 30, tzinfo=dt.UTC),
    }
    context = SerializationContext("orders", MessageField.VALUE)
    value = AvroSerializer(registry, ORDER)(made, context)
    read = value_reader(settings(format="avro"), registry)
    assert read(incoming(value)) == {
        "id": "a7",
        "items": [3, 4],
        "price": "12.50",
        "made": "2031-05-04T09:30:00Z",
    }
    assert read(incoming(None)) == {}


@pytest.mark.parametrize("value", [b"{}", b"\0\0\0\0\x63rest", b"\0"])
def test_value_that_is_not_avro_is_refused(registry: SchemaRegistryClient, value: bytes) -> None:
    with pytest.raises(InvalidValue):
        value_reader(settings(format="avro"), registry)(incoming(value))


def order_class() -> type[Message]:
    """Return a message class, as protoc generates it."""
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="order_id", number=1, type=9, label=1)
    order.field.add(name="items", number=2, type=5, label=3)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def test_protobuf_message_is_read_with_its_class(
    registry: SchemaRegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("shop_pb2")
    module.Order = order_class()  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "shop_pb2", module)
    context = SerializationContext("orders", MessageField.VALUE)
    serialize = ProtobufSerializer(module.Order, registry, {"use.deprecated.format": False})
    value = serialize(module.Order(order_id="b8", items=[4, 5]), context)
    form = settings(format="protobuf", message_type="shop_pb2:Order")
    assert value_reader(form, registry)(incoming(value)) == {"order_id": "b8", "items": [4, 5]}


@pytest.mark.parametrize("named", ["", "no_such_module:X", "decimal:Nothing"])
def test_class_that_cannot_be_imported_is_refused(
    registry: SchemaRegistryClient, named: str
) -> None:
    with pytest.raises(InvalidValue, match="cannot be imported"):
        value_reader(settings(format="protobuf", message_type=named), registry)


def test_unreachable_registry_does_not_count_against_the_message() -> None:
    client = SchemaRegistryClient({"url": "http://127.0.0.1:9", "max.retries": 0})
    read = value_reader(settings(format="avro"), client)
    with pytest.raises(StoreUnavailable, match="registry"):
        read(incoming(b"\0\0\0\0\x01rest"))


def test_format_that_needs_a_registry_says_so() -> None:
    with pytest.raises(InvalidValue, match="require a schema registry"):
        value_reader(read_kafka_settings({"in": {"format": "avro"}}))
