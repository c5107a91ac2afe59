"""“Test connection”: what answers at an address, what Parley can do with it, and what to do about what is missing.

It is asked for by an admin who waits, so it is bounded in time. Like everything that takes an address it goes through
the guard of `addresses.py`, and it says nothing from which a network could be explored: whether a port is closed,
filtered or somebody else's stands in the log, unless the deployment named that port or an engine has answered there.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from backend.core.i18n import _
from backend.engines import addresses, dialects, metrics
from backend.engines.addresses import AllowList
from backend.engines.client import ChatMessage, EngineClient, Probe, UpstreamModel
from backend.engines.dialects import LoadedModel, ModelState
from backend.engines.events import EngineFailed, Failure
from backend.engines.failures import failed
from backend.engines.findings import CANNOT_CHAT
from backend.engines.guarding import GuardedResolver
from backend.engines.kinds import Kind

log = logging.getLogger(__name__)

TEST_SECONDS = 15.0
"""Longer than the slowest page of an engine may take, and short enough for somebody who waits."""


class Verdict(StrEnum):
    GOOD = "good"
    NOTE = ""  # neither good nor bad
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Finding:
    verdict: Verdict
    sentence: str
    way_on: str = ""  # what to do about it
    detail: str = ""  # in the engine's own words


@dataclass(frozen=True, slots=True)
class Report:
    findings: tuple[Finding, ...]
    models: tuple[UpstreamModel, ...] = ()

    @property
    def answers(self) -> bool:
        return not any(finding.verdict is Verdict.BAD for finding in self.findings)


async def check_connection(
    url: str, api_key: str | None, *, kind: str | None, allowed: AllowList | None, answered_before: bool = False
) -> Report:
    """Raises BadInput for an address that may not be asked. With a `kind` it is spoken to as that, whatever it is.

    Without a list to be held against it is an address of the deployment, which may be anywhere.
    """
    address = addresses.parse(url.strip())
    outside = addresses.is_outside(await addresses.check(address, allowed)) if allowed else False
    may_tell = allowed is None or answered_before or allowed.names_port(address)
    started = time.monotonic()
    try:
        async with (
            asyncio.timeout(TEST_SECONDS),
            EngineClient(address.url, api_key, resolver=GuardedResolver(allowed) if allowed else None) as client,
        ):
            client.speak(kind, forced=bool(kind))
            probe = await client.probe()
            seconds = time.monotonic() - started
            more = await _more(client, probe)
    except TimeoutError:
        return _no(failed(Failure.TIMEOUT, f"no end within {TEST_SECONDS:g} s"), address.url, may_tell, bool(api_key))
    except EngineFailed as failure:
        return _no(failure, address.url, may_tell, bool(api_key))
    first = [_reached(probe, kind, seconds), *_outside(probe, outside), _models(probe)]
    return Report((*first, *more), tuple(probe.models))


def _no(failure: EngineFailed, url: str, may_tell: bool, had_key: bool) -> Report:
    log.info("The test of %s failed: %s (%s)", url, failure.kind, failure.detail)
    if not failure.kind.engines and not may_tell:
        sentence = _("No engine answers at this address.")
        way_on = _(
            "Parley's log and “parley doctor” on the server tell the exact error. It is not shown here, so that nobody"
            " explores a network with it."
        )
        advice = _what_to_do(Failure.UNREACHABLE, had_key)
        return Report((Finding(Verdict.BAD, sentence, f"{advice} {way_on}"),))
    return Report((Finding(Verdict.BAD, str(failure), _what_to_do(failure.kind, had_key), failure.detail),))


def _what_to_do(kind: Failure, had_key: bool) -> str:
    match kind:
        case Failure.AUTH if had_key:
            return _("Enter the key that the engine was started with.")
        case Failure.AUTH:
            return _("The engine wants a key. Enter the one that it was started with.")
        case Failure.LOADING:
            return _("Add it now, or test again in a moment: Parley looks again by itself until it is ready.")
        case Failure.OVERLOADED:
            return _("It is there. Test again when it has less to do.")
        case Failure.UNREACHABLE | Failure.TIMEOUT | Failure.NONSENSE | Failure.CUT:
            return _(
                "Check that it runs, that the port is right, that it listens on 0.0.0.0 and not only on 127.0.0.1, and "
                "that no firewall or sign-in page stands between. If its API is not at /v1, write the whole path."
            )
    return _("Look into the log of the engine.")


def _reached(probe: Probe, forced: str | None, seconds: float) -> Finding:
    name, version = dialects.of(probe.kind).name, probe.version or ""
    reached = _("Reached in {milliseconds} ms: {engine}.").format(
        milliseconds=f"{seconds * 1000:,.0f}", engine=f"{name} {version}".strip()
    )
    if forced and forced != probe.kind:
        spoken = dialects.of(forced).name
        return Finding(
            Verdict.WARN,
            _("{reached} It is treated as {kind}, as you chose.").format(reached=reached, kind=spoken),
            _("If answers fail, let Parley find out the kind."),
        )
    if not forced and probe.kind is Kind.OPENAI:
        way_on = _("It shows no sign of a kind that Parley knows. If you know better, choose the kind.")
        return Finding(Verdict.NOTE, reached, way_on)
    return Finding(Verdict.GOOD, reached)


def _outside(probe: Probe, is_outside: bool) -> Sequence[Finding]:
    if not is_outside and probe.kind is not Kind.HOSTED:
        return ()
    sentence = _("What people write leaves the building: this engine is on the Internet.")
    return (Finding(Verdict.WARN, sentence, _("It is marked so, and its models are published only by you.")),)


def _models(probe: Probe) -> Finding:
    if not probe.models:
        return Finding(
            Verdict.WARN, _("It answers, but has no models."), _("Load or download a model there; Parley sees it then.")
        )
    unknown = [model.id for model in probe.models if model.context_length is None]
    if unknown:
        return Finding(
            Verdict.WARN,
            _("It does not tell how much these can read: {models}.").format(models=_some(unknown)),
            _("Long conversations are then cut only when the engine says no. Load the model, if it is not loaded."),
        )
    return Finding(Verdict.GOOD, _("It tells how much each of its models can read."))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


async def _more(client: EngineClient, probe: Probe) -> Sequence[Finding]:
    """What Parley can do with it beyond asking."""
    health = await _health(client)
    loaded, there = await _lifecycle(client)
    return [*health, await _numbers(client), await _counting(client, probe, there), loaded]


async def _health(client: EngineClient) -> Sequence[Finding]:
    try:
        await client.check_health()
    except EngineFailed as failure:
        sentence = _("It lists its models, but says that it is not well: {what}").format(what=str(failure))
        return (Finding(Verdict.BAD, sentence, _what_to_do(failure.kind, True), failure.detail),)
    return ()


async def _numbers(client: EngineClient) -> Finding:
    tells = client.dialect.metrics
    try:
        found = await metrics.read(client.numbers, tells)
        detail = ""
    except EngineFailed as failure:
        found, detail = None, failure.detail
    if found is not None:
        return Finding(Verdict.GOOD, _("It tells how busy it is."))
    return Finding(
        Verdict.WARN if tells else Verdict.NOTE,
        _("It does not tell how busy it is, so there are no charts, and Parley goes by its own answers."),
        tells.missing if tells else "",
        detail,
    )


async def _counting(client: EngineClient, probe: Probe, there: Sequence[LoadedModel] | None) -> Finding:
    """With a model that is loaded: to count must not make an engine load one."""
    away = {model.name for model in there or () if model.state is not ModelState.LOADED}
    model = next((each.id for each in probe.models if each.id not in away and not CANNOT_CHAT.search(each.id)), None)
    if model is None and client.dialect.counter is not None:
        return Finding(Verdict.NOTE, _("Whether it counts tokens was not tried, because no model is loaded."))
    try:
        count = await client.count_tokens(model, [ChatMessage(role="user", content="Hi")]) if model else None
        detail = ""
    except EngineFailed as failure:
        count, detail = None, failure.detail
    if count is not None:
        return Finding(Verdict.GOOD, _("It counts tokens."))
    sentence = _("It does not count tokens, so Parley estimates how full a conversation is.")
    return Finding(Verdict.NOTE if client.dialect.counter is None else Verdict.WARN, sentence, detail=detail)


async def _lifecycle(client: EngineClient) -> tuple[Finding, Sequence[LoadedModel] | None]:
    try:
        there = await client.loaded()
        detail = ""
    except EngineFailed as failure:
        there, detail = None, failure.detail
    if there is not None:
        return Finding(Verdict.GOOD, _("Its models can be loaded and unloaded from here.")), there
    sentence = _("Its models cannot be loaded and unloaded from here.")
    lifecycle = client.dialect.lifecycle
    return Finding(Verdict.NOTE, sentence, lifecycle.switched_off if lifecycle else "", detail), None
