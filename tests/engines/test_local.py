import asyncio
import socket

from backend.engines import local
from backend.engines.local import LocalServer
from tests.engines import strangers


def listening() -> socket.socket:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def ollama_at(listener: socket.socket) -> LocalServer:
    return LocalServer("Ollama", f"http://127.0.0.1:{listener.getsockname()[1]}")


async def test_what_listens_is_found() -> None:
    with listening() as listener:
        ollama, lm_studio = ollama_at(listener), LocalServer("LM Studio", strangers.nobody())

        found = await local.find([lm_studio, ollama])

    assert found == (ollama,)


async def test_nothing_is_sent_to_what_is_found() -> None:
    with listening() as listener:
        await local.find([ollama_at(listener)])

        connection, _address = listener.accept()
        with connection:
            heard = connection.recv(100)

    assert heard == b""


async def test_something_that_takes_no_connections_is_not_waited_for() -> None:
    with strangers.full() as url:
        async with asyncio.timeout(2):
            found = await local.find([LocalServer("Ollama", url)])

    assert found == ()


def test_what_is_an_engine_already_is_not_offered() -> None:
    ollama, lm_studio = local.KNOWN

    assert local.free(local.KNOWN, []) == (ollama, lm_studio)
    assert local.free(local.KNOWN, ["http://127.0.0.1:11434"]) == (lm_studio,)
    assert local.free(local.KNOWN, ["http://localhost:11434/v1", "http://[::1]:1234"]) == ()
    assert local.free(local.KNOWN, ["http://gpu-1:11434"]) == (ollama, lm_studio)
