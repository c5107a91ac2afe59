import asyncio
import ipaddress
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies as st
from yarl import URL

from backend.core.errors import BadInput
from backend.core.settings import EngineSetting, Settings
from backend.engines import addresses
from backend.engines.addresses import IP, AllowList, allow_list, check, parse


def allowed(*entries: str, **settings: object) -> AllowList:
    return allow_list(Settings.model_validate({"engine_allowed": entries, **settings}))


def names(**known: str) -> addresses.Resolve:
    """A name service that knows only these, several addresses with commas between."""

    async def resolve(host: str) -> Sequence[IP]:
        key = re.sub("[.-]", "_", host)
        if key not in known:
            raise OSError("unknown name")
        return [ipaddress.ip_address(text) for text in known[key].split(",")]

    return resolve


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("http://gpu-1:8000", "http://gpu-1:8000"),
        ("http://gpu-1:8000/v1/", "http://gpu-1:8000"),
        ("HTTPS://Engines.Example.org/", "https://engines.example.org"),
        ("https://engines.example.org:443/team/v1", "https://engines.example.org/team/v1"),
        ("http://127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://[0:0:0:0:0:0:0:1]:8000", "http://[::1]:8000"),
        ("http://vllm_east:8000", "http://vllm_east:8000"),
    ],
)
def test_an_address_has_one_plain_form(written: str, plain: str) -> None:
    assert parse(written).url == plain
    assert parse(plain).url == plain


@pytest.mark.parametrize(
    "written",
    [
        "",
        "gpu-1:8000",
        "//gpu-1:8000",
        "file:///etc/passwd",
        "gopher://gpu-1:8000/",
        "http://",
        "http://:8000",
        "http://127.0.0.1:8000\\@allowed.example/",
        "http://allowed.example@127.0.0.1/",
        "http://user:password@gpu-1/",
        "http://@gpu-1/",
        "http://127.1:5432/",
        "http://2130706433/",
        "http://0x7f.1/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://127.0.0.0x1/",
        "http://127.0.0.1.:80/",
        "http://256.1.1.1/",
        "http://gpu-1.:8000",
        "http://gpu..1:8000",
        "http://-gpu:8000",
        "http://gpu-1:0",
        "http://gpu-1:65536",
        "http://gpu-1:٨٠",
        "http://gpu-1:8000?x=1",
        "http://gpu-1:8000#x",
        "http://gpu-1:8000/../admin",
        "http://gpu-1:8000/a/./b",
        "http://gpu-1:8000//b",
        "http://gpu-1:8000/%2e%2e/admin",
        "http://gpu%2d1:8000",
        "http://①②⑦.0.0.1/",
        "http://\uff47pu:8000",
        "http://gpu-1\t:8000",
        "http://gpu-1\r\nHost: other",
        "http://gpu-1:8000\n",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "http://[1.2.3]/",
        "http://" + "a" * 64 + "/",
        "http://" + "a." * 130 + "example/",
        "http://gpu-1/" + "a" * 500,
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(written: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(written)

    assert caught.value.fields["url"].endswith(".")


@given(st.text(st.characters(codec="utf-8")), st.text("0123456789abcdefx.:[]@\\/%", max_size=30))
def test_the_client_reads_the_same_host_as_we_do(anything: str, tricky: str) -> None:
    for text in (anything, f"http://{tricky}", f"http://{tricky}@{tricky}"):
        try:
            address = parse(text)
        except BadInput:
            continue
        url = URL(address.url)
        assert (url.host, url.port) == (address.host, address.port)
        assert url.user is None


async def test_a_listed_name_may_be_reached_wherever_it_is() -> None:
    found = await check(parse("http://gpu-1:8000"), allowed("gpu-1"), names(gpu_1="10.1.2.3"))

    assert found == (ipaddress.ip_address("10.1.2.3"),)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("gpu-1:8000", "http://gpu-1:8000"),
        ("GPU-1", "http://gpu-1:9000"),
        ("10.1.2.3", "http://gpu-1:9000"),
        ("10.1.2.3:8000", "http://gpu-1:8000"),
        ("10.0.0.0/8", "http://gpu-1:8000"),
        ("10.0.0.0/8", "http://10.1.2.3:8000"),
        ("[fd00::5]:8000", "http://[fd00::5]:8000"),
        ("fd00::5", "http://[fd00::5]:1"),
        ("fd00::/8", "http://[fd00::5]:8000"),
        ("10.0.0.0/8", "http://[::ffff:10.1.2.3]:8000"),
    ],
)
async def test_an_entry_is_a_host_an_address_or_a_network_with_or_without_a_port(entry: str, url: str) -> None:
    assert await check(parse(url), allowed(entry), names(gpu_1="10.1.2.3"))


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("gpu-2", "http://gpu-1:8000"),
        ("gpu-1:8000", "http://gpu-1:8001"),
        ("10.1.2.3:8000", "http://10.1.2.3:8001"),
        ("10.1.2.4", "http://gpu-1:8000"),
        ("192.168.0.0/16", "http://10.1.2.3:8000"),
        ("10.1.2.3", "http://nowhere:8000"),
        # Written in ways that other programs take for an address that is listed
        ("127.0.0.0/8", "http://[2002:7f00:1::]/"),
        ("127.0.0.0/8", "http://[::7f00:1]/"),
        ("127.0.0.0/8", "http://[64:ff9b::7f00:1]/"),
    ],
)
async def test_what_is_not_listed_is_refused(entry: str, url: str) -> None:
    with pytest.raises(BadInput, match="PARLEY_ENGINE_ALLOWED"):
        await check(parse(url), allowed(entry), names(gpu_1="10.1.2.3"))


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b:1::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::]/",
        "http://[::a9fe:a9fe]/",
        "http://[2001:0:a9fe:a9fe::]/",
        "http://[fd00::5efe:a9fe:a9fe]/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        "http://0.0.0.0:8000/",
        "http://[::]:8000/",
        "http://224.0.0.1/",
        "http://255.255.255.255/",
        "http://metadata:80/",
        "http://listed/",
    ],
)
async def test_some_addresses_are_refused_even_when_everything_is_listed(url: str) -> None:
    everything = allowed("0.0.0.0/0", "::/0", "listed", "metadata")

    with pytest.raises(BadInput, match="PARLEY_ENGINE_ALLOWED"):
        await check(parse(url), everything, names(metadata="169.254.169.254", listed="10.0.0.1,::ffff:169.254.1.1"))


async def test_every_address_of_a_name_has_to_be_allowed() -> None:
    both = names(gpu_1="10.1.2.3,192.168.1.1")

    with pytest.raises(BadInput):
        await check(parse("http://gpu-1:8000"), allowed("10.0.0.0/8"), both)


async def test_a_refusal_does_not_tell_what_is_there() -> None:
    sentences = set()
    for url in ("http://10.0.0.9:22", "http://unknown:8000", "http://known:8000", "http://169.254.169.254"):
        with pytest.raises(BadInput) as caught:
            await check(parse(url), allowed("gpu-1"), names(known="10.0.0.1"))
        sentences.add(str(caught.value))

    assert len(sentences) == 1


async def test_a_listed_name_that_is_not_known_yet_is_told_so() -> None:
    with pytest.raises(BadInput, match="no machine named “gpu-1”"):
        await check(parse("http://gpu-1:8000"), allowed("gpu-1"), names())


async def test_a_name_service_that_never_answers_does_not_hold_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(host: str) -> Sequence[IP]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(addresses, "_RESOLVE_SECONDS", 0.01)

    with pytest.raises(BadInput):
        await check(parse("http://gpu-1:8000"), allowed("gpu-1"), never)


async def test_names_are_looked_up_by_the_system() -> None:
    assert await check(parse("http://localhost:8000"), allowed("127.0.0.0/8", "::1"))


async def test_without_a_list_loopback_and_the_hosts_of_the_deployment_are_allowed() -> None:
    settings = Settings(engines=(EngineSetting(name="east", url="http://gpu-1:8000"),))
    resolve = names(gpu_1="10.1.2.3", gpu_2="10.1.2.4")

    assert await check(parse("http://127.0.0.1:11434"), allow_list(settings), resolve)
    assert await check(parse("http://[::1]:1234"), allow_list(settings), resolve)
    assert await check(parse("http://gpu-1:9000"), allow_list(settings), resolve)
    with pytest.raises(BadInput):
        await check(parse("http://gpu-2:8000"), allow_list(settings), resolve)


async def test_a_list_replaces_the_defaults() -> None:
    with pytest.raises(BadInput):
        await check(parse("http://127.0.0.1:11434"), allowed("gpu-1"))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:5433/",
        "http://[::ffff:127.0.0.1]:5433/",
        "http://[::1]:5433/",
        "http://me:5433/",
        "http://db:6000/",
        "http://10.9.9.9:6000/",
        "http://127.0.0.1:8080/",
    ],
)
async def test_our_own_database_and_pages_are_never_an_engine(url: str) -> None:
    everywhere = ("0.0.0.0/0", "::/0", "db")
    resolve = names(me="127.0.0.1", db="10.9.9.9")
    near = allowed(*everywhere, database_url="postgresql://parley@127.0.0.1:5433/parley")
    far = allowed(*everywhere, database_url="postgresql://parley@db:6000/parley")

    with pytest.raises(BadInput):
        await check(parse(url), far if "6000" in url else near, resolve)


async def test_a_database_behind_a_socket_forbids_no_address() -> None:
    socket = allowed("127.0.0.0/8", database_url="postgresql://parley@/parley?host=/run/parley")

    assert await check(parse("http://127.0.0.1:5432/"), socket)


@pytest.mark.parametrize(
    "entry", ["", "http://gpu-1", "10.0.0.0/33", "gpu-1:", "gpu-1:x", ":8000", "a b", "127.1", "*"]
)
def test_an_entry_that_cannot_be_read_is_named(entry: str) -> None:
    with pytest.raises(BadInput, match="PARLEY_ENGINE_ALLOWED") as caught:
        allowed(entry)

    assert f"“{entry}”" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://gpu-1:8000", True),
        ("http://nowhere:8000", True),
        ("https://api.example.org/v1", False),
        ("https://8.8.8.8", False),
    ],
)
async def test_an_engine_on_the_internet_is_not_on_site(url: str, expected: bool) -> None:
    resolve = names(gpu_1="10.1.2.3", api_example_org="10.0.0.1,93.184.216.34")

    assert await addresses.is_on_site(url, resolve) is expected


def test_a_key_belongs_to_scheme_host_and_port() -> None:
    assert addresses.origin("http://gpu-1:8000/team/v1") == addresses.origin("http://gpu-1:8000")
    assert addresses.origin("https://gpu-1") == addresses.origin("https://gpu-1:443/v1")
    origins = ("http://gpu-1", "https://gpu-1", "http://gpu-1:81", "http://gpu-2")
    assert len({addresses.origin(url) for url in origins}) == 4
