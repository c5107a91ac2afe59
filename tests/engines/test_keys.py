import pytest

from backend.core.ids import new_id
from backend.core.security import Sealer, Unreadable
from backend.engines import keys
from backend.engines.models import Engine, Source

SECRET = "0123456789abcdef" * 2


def an_engine(url: str = "http://gpu-1:8000") -> Engine:
    return Engine(id=new_id(), name="east", url=url, source=Source.DATABASE)


def test_a_key_is_stored_sealed_and_comes_back() -> None:
    engine, sealer = an_engine(), Sealer([SECRET], "engine keys")

    keys.seal(sealer, engine, "sk-very-secret")

    assert engine.sealed_api_key is not None
    assert b"secret" not in engine.sealed_api_key
    assert keys.unseal(sealer, engine) == "sk-very-secret"


def test_an_empty_key_is_none() -> None:
    engine, sealer = an_engine(), Sealer([SECRET], "engine keys")

    keys.seal(sealer, engine, "")

    assert engine.sealed_api_key is None
    assert keys.unseal(sealer, engine) is None


def test_the_path_may_change_under_a_key() -> None:
    engine, sealer = an_engine(), Sealer([SECRET], "engine keys")
    keys.seal(sealer, engine, "sk")

    engine.url = "http://gpu-1:8000/team/v1"

    assert keys.unseal(sealer, engine) == "sk"


@pytest.mark.parametrize("elsewhere", ["http://evil:8000", "https://gpu-1:8000", "http://gpu-1:8001", "http://gpu-1"])
def test_a_key_cannot_be_read_for_another_server(elsewhere: str) -> None:
    engine, sealer = an_engine(), Sealer([SECRET], "engine keys")
    keys.seal(sealer, engine, "sk")

    engine.url = elsewhere

    with pytest.raises(Unreadable):
        keys.unseal(sealer, engine)


def test_a_key_cannot_be_read_for_another_engine() -> None:
    engine, other, sealer = an_engine(), an_engine(), Sealer([SECRET], "engine keys")
    keys.seal(sealer, engine, "sk")

    other.sealed_api_key = engine.sealed_api_key

    with pytest.raises(Unreadable):
        keys.unseal(sealer, other)


def test_the_secret_may_be_changed_in_two_steps() -> None:
    engine, new = an_engine(), "fedcba9876543210" * 2
    keys.seal(Sealer([SECRET], "engine keys"), engine, "sk")

    assert keys.unseal(Sealer([new, SECRET], "engine keys"), engine) == "sk"
    with pytest.raises(Unreadable):
        keys.unseal(Sealer([new], "engine keys"), engine)
