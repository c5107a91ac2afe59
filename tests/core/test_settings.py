"""What a deployment can set, and the sentence for what it set wrongly."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from backend.core.settings import EngineSetting, MissingSecret, Settings, unknown_names

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder without a `parley.toml`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_everything_has_a_default() -> None:
    settings = Settings()

    assert settings.origin == "http://127.0.0.1:8080"
    assert settings.data_dir == Path("var")


def test_values_come_from_the_environment_then_from_the_file(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (nowhere / "parley.toml").write_text('port = 9001\nidle_seconds = 7\nengine_allowed = ["10.0.0.0/8"]\n')
    monkeypatch.setenv("PARLEY_PORT", "9002")

    settings = Settings()

    assert settings.port == 9002
    assert settings.idle_seconds == 7
    assert settings.engine_allowed == ("10.0.0.0/8",)


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a compose file passes on what `.env` leaves empty."""
    for name in Settings.model_fields:
        monkeypatch.setenv(f"PARLEY_{name.upper()}", "")

    assert Settings() == Settings.model_construct()


def test_engines_are_a_json_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PARLEY_ENGINES",
        '[{"name": "gpu-1", "url": "http://gpu-1:8000/v1/", "api_key": "sk-geheim", "kind": "vllm"},'
        ' {"name": "gpu-2", "url": "https://gpu-2"}]',
    )

    first, second = Settings().engines

    assert (first.name, first.url, first.kind) == ("gpu-1", "http://gpu-1:8000", "vllm")
    assert first.api_key is not None
    assert first.api_key.get_secret_value() == "sk-geheim"
    assert (second.url, second.api_key, second.kind) == ("https://gpu-2", None, None)


@pytest.mark.parametrize(
    ("given_url", "url"),
    [
        ("postgresql://app@db/parley", "postgresql+psycopg://app@db/parley"),
        ("postgres://app@db/parley", "postgresql+psycopg://app@db/parley"),
        ("postgresql+psycopg://app@db/parley", "postgresql+psycopg://app@db/parley"),
        ("", ""),
    ],
)
def test_there_is_one_driver_however_the_database_is_named(given_url: str, url: str) -> None:
    settings = Settings(database_url=given_url, migrate_database_url=given_url)

    assert (settings.database_url, settings.migrate_database_url) == (url, url)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"port": 0}, "greater than or equal to 1"),
        ({"port": "many"}, "valid integer"),
        ({"idle_seconds": 0}, "greater than 0"),
        ({"drain_seconds": -1}, "greater than or equal to 0"),
        ({"database_connections": 1}, "greater than or equal to 2"),
        ({"message_bytes": 100}, "greater than or equal to 1024"),
        ({"titles": "perhaps"}, "valid boolean"),
        ({"database_url": "mysql://db/parley"}, "must begin with postgresql://"),
        ({"public_url": "chat.example.org"}, "must be an address without a path"),
        ({"public_url": "https://chat.example.org/parley"}, "must be an address without a path"),
        ({"public_url": "https://chat.example.org/?a=1"}, "must be an address without a path"),
        ({"public_url": "https://chat.example.org/#top"}, "must be an address without a path"),
        ({"public_url": "https://me:secret@chat.example.org"}, "must be an address without a path"),
        ({"public_url": "https://chat.example.org:99999"}, "Port out of range"),
        ({"public_url": "ftp://chat.example.org"}, "must be an address without a path"),
        ({"engines": [{"name": "a", "url": "gpu:8000"}]}, "must be an address like http://host:8000"),
        ({"engines": [{"name": "a", "url": "http://me:pw@gpu:8000"}]}, "must be an address like http://host:8000"),
        ({"engines": [{"name": "a", "url": "http://gpu:80000"}]}, "Port out of range"),
        ({"engines": [{"name": "a", "url": "http://gpu\\@evil.example"}]}, "must be an address like http://host:8000"),
        ({"engines": [{"name": "", "url": "http://gpu"}]}, "at least 1 character"),
        ({"engines": [{"name": "a", "url": "http://gpu", "kind": "abacus"}]}, "'vllm'"),
        ({"engines": [{"name": "a", "url": "http://gpu", "adress": 1}]}, "not permitted"),
        ({"engines": [{"name": "a", "url": "http://x"}, {"name": "a", "url": "http://y"}]}, "names an engine twice"),
        ({"admin_email": "a@corp.example"}, "set together or not at all"),
        ({"admin_password": "correct horse battery"}, "set together or not at all"),
    ],
)
def test_a_wrong_value_is_refused_in_words(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(values)

    assert sentence in str(refused.value)


def test_a_refusal_does_not_repeat_secrets() -> None:
    values = {"engines": [{"name": "a", "url": "http://me:geheim@gpu", "api_key": "sk-geheim"}], "secret_key": "geheim"}

    with pytest.raises(ValidationError) as refused:
        Settings.model_validate(values)

    assert "geheim" not in str(refused.value)
    assert "geheim" not in repr(Settings(secret_key="geheim" * 8))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_plain_http_is_for_this_machine(host: str) -> None:
    assert Settings(host=host).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "chat.example.org"])
def test_passwords_do_not_cross_the_network_in_the_clear_by_accident(host: str) -> None:
    with pytest.raises(ValidationError, match="PARLEY_PUBLIC_URL must begin with https://"):
        Settings(host=host)
    with pytest.raises(ValidationError, match="PARLEY_INSECURE_HTTP=1"):
        Settings(host=host, public_url="http://chat.example.org")

    assert Settings(host=host, public_url="https://chat.example.org").is_https
    assert Settings(host=host, public_url="http://chat.example.org", insecure_http=True).origin


def test_other_machines_need_an_address_to_come_to() -> None:
    """A form posted from any other address than the one we know is refused as cross-site."""
    with pytest.raises(ValidationError, match="PARLEY_PUBLIC_URL must say"):
        Settings(host="0.0.0.0", insecure_http=True)


@pytest.mark.parametrize(
    ("values", "origin"),
    [
        ({}, "http://127.0.0.1:8080"),
        ({"port": 9000}, "http://127.0.0.1:9000"),
        ({"port": 80}, "http://127.0.0.1"),
        ({"host": "localhost"}, "http://localhost:8080"),
        ({"host": "::1"}, "http://[::1]:8080"),
        ({"public_url": "https://chat.example.org/"}, "https://chat.example.org"),
        ({"public_url": "https://Chat.Example.ORG:443"}, "https://chat.example.org"),
        ({"public_url": "http://chat.example.org:80"}, "http://chat.example.org"),
        ({"public_url": "https://chat.example.org:8443"}, "https://chat.example.org:8443"),
        ({"public_url": "http://[2001:DB8::1]:8080"}, "http://[2001:db8::1]:8080"),
        ({"host": "0.0.0.0", "public_url": "https://chat.example.org"}, "https://chat.example.org"),
    ],
)
def test_the_origin_is_written_as_a_browser_writes_it(values: dict[str, object], origin: str) -> None:
    """It is compared with the header `Origin`."""
    assert Settings.model_validate(values).origin == origin


def test_the_secret_comes_from_a_variable_or_a_file(nowhere: Path) -> None:
    kept = nowhere / "secret.key"
    kept.write_text(SECRET + "\n")

    assert Settings(secret_key=SECRET).secrets() == [SECRET]
    assert Settings(secret_key_file=kept).secrets() == [SECRET]
    assert Settings(secret_key=f"{SECRET[::-1]}, {SECRET}").secrets() == [SECRET[::-1], SECRET]


@pytest.mark.parametrize("value", ["short", "a" * 64, f"{SECRET},short"])
def test_a_secret_that_could_be_guessed_is_refused(value: str) -> None:
    with pytest.raises(MissingSecret, match="at least 32 characters") as refused:
        Settings(secret_key=value).secrets()

    assert value not in str(refused.value)


@pytest.mark.parametrize("value", [None, "", " , "])
def test_without_a_secret_the_sentence_says_how_to_make_one(value: str | None) -> None:
    with pytest.raises(MissingSecret, match="openssl rand -hex 32"):
        Settings(secret_key=value).secrets()


def test_a_secret_file_that_cannot_be_read_is_told(nowhere: Path) -> None:
    with pytest.raises(MissingSecret, match="PARLEY_SECRET_KEY_FILE cannot be read: No such file"):
        Settings(secret_key_file=nowhere / "gone").secrets()

    (nowhere / "binary").write_bytes(b"\xff\xfe\x00" * 20)
    with pytest.raises(MissingSecret, match="PARLEY_SECRET_KEY_FILE cannot be read"):
        Settings(secret_key_file=nowhere / "binary").secrets()


def test_a_misspelt_variable_is_noticed() -> None:
    environment = ["PARLEY_PORT", "parley_port", "PARLEY_PROT", "PATH", "PARLEY_ENGINE"]

    assert unknown_names(environment) == ["PARLEY_ENGINE", "PARLEY_PROT"]


@pytest.mark.parametrize("written", ["gpu1.example, 10.0.8.0/24", '["gpu1.example", "10.0.8.0/24"]'])
def test_a_list_may_be_written_as_people_write_one(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("PARLEY_ENGINE_ALLOWED", written)

    assert Settings().engine_allowed == ("gpu1.example", "10.0.8.0/24")


@pytest.mark.parametrize(
    ("url", "kept"),
    [("http://a:8000/v1/", "http://a:8000"), ("https://host/openai/v1", "https://host/openai/v1")],
)
def test_only_the_usual_path_of_an_engine_is_left_out(url: str, kept: str) -> None:
    assert EngineSetting(name="a", url=url).url == kept
