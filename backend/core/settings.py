"""Everything a deployment can set, in one class: `PARLEY_*` variables, then `parley.toml`, then the defaults.

A value set here beats the database; the pages say so. Each field has a row in `docs/settings.md` (a test compares).
"""

import ipaddress
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

EngineKind = Literal[
    "vllm", "sglang", "trtllm", "llamacpp", "ollama", "lmstudio", "tgi", "openai", "hosted",
    "vllm_router", "smg", "production_stack", "llmd",
]  # fmt: skip

_MIN_SECRET = 32


def _listed(value: object) -> object:
    """`a, b` as people write it in a variable; JSON and TOML bring lists of their own."""
    if isinstance(value, str):
        return json.loads(value) if value.lstrip().startswith("[") else [part.strip() for part in value.split(",")]
    return value


Listed = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_listed)]


class EngineSetting(BaseModel):
    """One entry of `PARLEY_ENGINES`."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=80)]
    url: Annotated[str, Field(max_length=500)]
    api_key: SecretStr | None = None
    kind: EngineKind | None = None

    @field_validator("url")
    @classmethod
    def is_http(cls, url: str) -> str:
        parts = urlsplit(url)
        odd = "\\" in url or "@" in parts.netloc or parts.port == 0  # `port` raises where it is none
        if parts.scheme not in ("http", "https") or not parts.hostname or odd:
            raise ValueError("must be an address like http://host:8000")
        return url.rstrip("/").removesuffix("/v1") if parts.path.rstrip("/") == "/v1" else url.rstrip("/")


class ProviderSetting(BaseModel):
    """One entry of `PARLEY_OIDC`: a company sign-in as configuration."""

    model_config = ConfigDict(extra="forbid")

    slug: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    name: Annotated[str, Field(min_length=1, max_length=80)]
    issuer: Annotated[str, Field(min_length=1, max_length=500)]
    client_id: Annotated[str, Field(min_length=1, max_length=500)]
    client_secret: SecretStr | None = None
    scopes: str = "openid profile email"
    unknown: Literal["refuse", "create"] = "refuse"
    link_by_email: bool = False
    name_claim: str = "name"
    email_claim: str = "email"
    groups_claim: str = "groups"
    groups: Literal["ignore", "mapped", "create"] = "ignore"
    group_map: dict[str, str] = {}
    blocked_groups: tuple[str, ...] = ()
    role_claim: str = ""
    admin_values: tuple[str, ...] = ()
    logout: bool = False


class Settings(BaseSettings):
    """Seconds are floats so that tests can scale them down."""

    model_config = SettingsConfigDict(
        env_prefix="PARLEY_",
        env_ignore_empty=True,  # a compose file passes on as empty what `.env` leaves open
        toml_file="parley.toml",
        extra="ignore",
        hide_input_in_errors=True,
    )

    database_url: str = ""
    migrate_database_url: str = ""
    secret_key: SecretStr | None = None
    secret_key_file: Path | None = None

    public_url: str = ""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65535)] = 8080
    insecure_http: bool = False
    trusted_proxies: Listed = ()
    data_dir: Path = Path("var")

    admin_email: str = ""
    admin_password: SecretStr | None = None
    require_second_factor: Literal["nobody", "admins", "everybody"] | None = None

    oidc: tuple[ProviderSetting, ...] = ()
    oidc_leeway_seconds: Annotated[int, Field(ge=0, le=300)] = 60

    engines: tuple[EngineSetting, ...] = ()
    embedded_engine: EngineSetting | None = None
    engine_allowed: Listed = ()
    demo_model: Path | None = None
    first_token_seconds: Annotated[float, Field(gt=0)] = 300
    idle_seconds: Annotated[float, Field(gt=0)] = 60
    probe_seconds: Annotated[float, Field(gt=0)] = 10

    processes: Annotated[int, Field(ge=1, le=64)] = 1
    drain_seconds: Annotated[float, Field(ge=0)] = 10
    database_connections: Annotated[int, Field(ge=2, le=200)] = 10

    message_bytes: Annotated[int, Field(ge=1024, le=16 * 1024 * 1024)] = 1024 * 1024
    file_bytes: Annotated[int, Field(ge=1024, le=200 * 1024 * 1024)] = 20 * 1024 * 1024
    file_characters: Annotated[int, Field(ge=1000, le=10_000_000)] = 400_000
    files_per_message: Annotated[int, Field(ge=1, le=50)] = 10
    answers_per_person: Annotated[int, Field(ge=1, le=1000)] = 4
    everybody_may: Listed = ()
    everybody_may_not: Listed = ()

    session_idle_hours: Annotated[float, Field(gt=0)] = 12
    session_days: Annotated[float, Field(gt=0)] = 7
    titles: bool = True
    audit_days: Annotated[int, Field(ge=0, le=36_500)] = 0

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @field_validator("database_url", "migrate_database_url")
    @classmethod
    def speaks_psycopg(cls, url: str) -> str:
        """Accept the plain forms people paste; there is one driver."""
        for prefix in ("postgresql://", "postgres://"):
            if url.startswith(prefix):
                return "postgresql+psycopg://" + url.removeprefix(prefix)
        if url and not url.startswith("postgresql+psycopg://"):
            raise ValueError("must begin with postgresql://")
        return url

    @field_validator("audit_days")
    @classmethod
    def keeps_a_month(cls, days: int) -> int:
        """The database removes nothing younger (`migrations/`), whoever asks."""
        if 0 < days < 30:
            raise ValueError("must be 0, for ever, or at least 30")
        return days

    @field_validator("public_url")
    @classmethod
    def is_an_origin(cls, url: str) -> str:
        if not url:
            return url
        parts = urlsplit(url)
        more = parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc
        if parts.scheme not in ("http", "https") or not parts.hostname or more:
            raise ValueError("must be an address without a path, like https://chat.example.org")
        return _origin(parts.scheme, parts.hostname, parts.port)

    @model_validator(mode="after")
    def is_consistent(self) -> Self:
        if bool(self.admin_email) != bool(self.admin_password):
            raise ValueError("PARLEY_ADMIN_EMAIL and PARLEY_ADMIN_PASSWORD are set together or not at all")
        names = [engine.name for engine in self.engines]
        if len(set(names)) != len(names):
            raise ValueError("PARLEY_ENGINES names an engine twice")
        for of_providers in ([each.slug for each in self.oidc], [each.name for each in self.oidc]):
            if len(set(of_providers)) != len(of_providers):
                raise ValueError("PARLEY_OIDC names a provider twice")
        if not self.is_loopback and not self.is_https and not self.insecure_http:
            raise ValueError(
                f"PARLEY_HOST={self.host} is reachable from other machines, so PARLEY_PUBLIC_URL must begin with "
                "https:// (or set PARLEY_INSECURE_HTTP=1 if you accept that passwords cross the network in the clear)"
            )
        if not self.is_loopback and not self.public_url:
            raise ValueError(
                f"PARLEY_HOST={self.host} is reachable from other machines, so PARLEY_PUBLIC_URL must say under which "
                "address, like http://192.168.1.5:8080; what comes from any other is refused"
            )
        return self

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_https(self) -> bool:
        return self.public_url.startswith("https://")

    @property
    def origin(self) -> str:
        """Where people reach Parley, without a slash at the end. Links are built from this, never from a request."""
        return self.public_url or _origin("http", self.host, self.port)

    def secrets(self) -> list[str]:
        """The master secret, or new and old while it is being changed. Raises `MissingSecret`."""
        value = self.secret_key.get_secret_value() if self.secret_key else ""
        if not value and self.secret_key_file:
            try:
                value = self.secret_key_file.read_text()
            except OSError as error:
                raise MissingSecret(f"PARLEY_SECRET_KEY_FILE cannot be read: {error.strerror}.") from error
            except UnicodeDecodeError as error:
                raise MissingSecret("PARLEY_SECRET_KEY_FILE cannot be read: it does not hold text.") from error
        found = [part.strip() for part in value.split(",") if part.strip()]
        if not found:
            raise MissingSecret(
                "PARLEY_SECRET_KEY or PARLEY_SECRET_KEY_FILE must be set. "
                "Make a secret once with `openssl rand -hex 32`, and keep it: it opens the stored engine keys."
            )
        if any(len(secret) < _MIN_SECRET or len(set(secret)) < 8 for secret in found):
            raise MissingSecret(f"PARLEY_SECRET_KEY must have at least {_MIN_SECRET} characters, chosen at random.")
        return found


def _origin(scheme: str, host: str, port: int | None) -> str:
    """Written as a browser writes it, because the header `Origin` is compared with it."""
    host = f"[{host}]" if ":" in host else host
    is_default = port in (None, {"http": 80, "https": 443}[scheme])
    return f"{scheme}://{host}" if is_default else f"{scheme}://{host}:{port}"


def unknown_names(environment: Iterable[str]) -> list[str]:
    """`PARLEY_*` variables that no setting reads: most often a typing mistake, which silence would hide."""
    known = {f"PARLEY_{name}".upper() for name in Settings.model_fields}
    return sorted(name for name in environment if name.upper().startswith("PARLEY_") and name.upper() not in known)


class MissingSecret(Exception):
    """There is no usable master secret; `str()` says which variable to set."""
