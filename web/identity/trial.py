"""What a sign-in that changed nothing was told, and what it would have done, as a page."""

import json
from collections.abc import Iterator

from fastapi import Request
from starlette.responses import HTMLResponse

from backend.core.i18n import _
from backend.core.text import clean
from backend.identity.deciding import Outcome
from backend.identity.entrance import Trial
from backend.identity.rules import Groups, Rules
from web.rendering import page

_LONGEST = 600


def trial_page(request: Request, trial: Trial) -> HTMLResponse:
    return page(
        request,
        "identity/trial.html",
        trial=trial,
        refused=trial.decision.outcome is Outcome.REFUSED,
        outcome=_outcome(trial),
        warnings=[*trial.warnings, *trial.groups.problems],
        effects=list(_effects(trial)),
        claims=[(clean(name)[:200], _value(value)) for name, value in sorted(trial.claims.items())],
    )


def _outcome(trial: Trial) -> str:
    person = trial.decision.person
    match trial.decision.outcome:
        case Outcome.KNOWN:
            assert person is not None
            return _("As {name}, who is known by this provider already.").format(name=person.name)
        case Outcome.LINK:
            assert person is not None
            return _("As {name}, whose account would be connected by its mail address.").format(name=person.name)
        case Outcome.NEW:
            return _("As somebody new: an account would be made.")
        case Outcome.REFUSED:
            return ""


def _effects(trial: Trial) -> Iterator[tuple[str, str]]:
    facts = trial.facts
    yield _("Name"), facts.name or "–"
    yield _("Mail address"), facts.email or "–"
    verified = {True: _("yes"), False: _("no"), None: _("the provider does not say")}
    yield _("Address verified"), verified[facts.email_verified]
    person = trial.decision.person
    if facts.is_admin:
        yield _("Role"), _("Administrator, by the claim")
    elif person is not None and person.is_admin:
        yield _("Role"), _("Administrator, as before")
    else:
        yield _("Role"), _("Member")
    if Rules.stored(trial.provider.rules).groups is Groups.IGNORE:
        yield _("Groups"), _("nothing changes: what the provider lists is ignored")
        return
    if facts.groups is None:
        yield _("Groups"), _("nothing changes: the list could not be had")
        return
    new = [here for _theirs, here in trial.groups.new]
    yield _("Would join"), _names([*(group.name for group in trial.groups.joins), *new])
    yield _("Would be made"), _names(new)
    yield _("Would leave"), _names([group.name for group in trial.groups.leaves])
    yield _("Stays in"), _names([group.name for group in trial.groups.stays])


def _names(names: list[str]) -> str:
    return ", ".join(names) or "–"


def _value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = clean(text)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
