from __future__ import annotations

import asyncio
import socket

from headway.server.listener import ListenAddress, Listener


async def test_small_packets_of_a_reply_do_not_wait_for_each_other() -> None:
    # On a transport that asyncio does not recognise as TCP, Nagle's algorithm and delayed ACKs
    # delay each reply that is written in two parts by 40 ms.
    async def answers(*_: object) -> None: ...

    listener = Listener(answers, ListenAddress(port=0))
    listening: socket.socket = listener._socket
    set_at: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        plain = writer.get_extra_info("socket")
        set_at.set_result(plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async with await asyncio.start_server(accepted, sock=listening):
        _, writer = await asyncio.open_connection(*listening.getsockname())
        assert await set_at
        writer.close()
        await writer.wait_closed()
