"""As much of Protocol Buffers as is needed to speak Kademlia's and gossipsub's messages, well
or badly."""

from __future__ import annotations


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        if not number:
            return bytes([*out, low])
        out.append(low | 0x80)


def number_field(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def delimited(message: bytes) -> bytes:
    """As it goes over a stream."""
    return varint(len(message)) + message


PUT_VALUE, GET_VALUE, ADD_PROVIDER, GET_PROVIDERS, FIND_NODE = range(5)


def kademlia(kind: int, key: bytes, *rest: bytes) -> bytes:
    return number_field(1, kind) + bytes_field(2, key) + b"".join(rest)


def put_value(key: bytes, value: bytes) -> bytes:
    return kademlia(PUT_VALUE, key, bytes_field(3, bytes_field(1, key) + bytes_field(2, value)))


def add_provider(key: bytes, peer: bytes, address: bytes) -> bytes:
    who = bytes_field(1, peer) + bytes_field(2, address) + number_field(3, 1)
    return kademlia(ADD_PROVIDER, key, bytes_field(9, who))


def publish(topic: str, data: bytes) -> bytes:
    """A gossipsub RPC with one message."""
    return bytes_field(2, bytes_field(2, data) + bytes_field(4, topic.encode()))


def subscribe(topic: str) -> bytes:
    return bytes_field(1, number_field(1, 1) + bytes_field(2, topic.encode()))
