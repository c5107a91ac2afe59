"""What a provider says of a person, read out of its claims by the rules for it. Nothing here is guessed: what is
missing is named, and a list of groups that could not be had is not an empty one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backend.accounts.models import normal_email
from backend.core.i18n import _
from backend.core.text import clean, one_line
from backend.identity.rules import Groups, Rules

MAX_GROUPS = 500


@dataclass(frozen=True, slots=True)
class Facts:
    issuer: str
    subject: str
    name: str
    email: str  # normal, or empty
    email_verified: bool | None  # None: the provider does not say
    groups: tuple[str, ...] | None  # None: not known; nobody loses a group for that
    groups_problem: str  # a sentence why they are not known, or empty
    is_admin: bool  # by the role claim
    sid: str | None = None  # what the provider calls the session


def facts_of(claims: Mapping[str, Any], issuer: str, rules: Rules) -> Facts:
    """Of claims whose origin is proved already."""
    email = _text(find(claims, rules.email_claim))
    groups, problem = _groups(claims, rules)
    roles = _texts(find(claims, rules.role_claim)) if rules.role_claim else ()
    return Facts(
        issuer=issuer,
        subject=str(claims["sub"]),
        name=_name(claims, rules, email),
        email=normal_email(email),
        email_verified=_verified(claims, rules),
        groups=groups,
        groups_problem=problem,
        is_admin=any(role in rules.admin_values for role in roles),
        sid=_text(claims.get("sid"))[:255] or None,
    )


def find(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by a path into objects as Keycloak has them: `realm_access.roles`."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def _name(claims: Mapping[str, Any], rules: Rules, email: str) -> str:
    given = " ".join(filter(None, (_text(claims.get("given_name")), _text(claims.get("family_name")))))
    for name in (_text(find(claims, rules.name_claim)), given, _text(claims.get("preferred_username"))):
        if line := one_line(name, 100):
            return line
    return one_line(email.partition("@")[0], 100)


def _verified(claims: Mapping[str, Any], rules: Rules) -> bool | None:
    """True for a true `email_verified` alone, which is about the claim `email` and no other."""
    said = claims.get("email_verified")
    if said is None or rules.email_claim != "email":
        return None
    return said is True


def _groups(claims: Mapping[str, Any], rules: Rules) -> tuple[tuple[str, ...] | None, str]:
    if rules.groups is Groups.IGNORE:
        return None, ""
    elsewhere = claims.get("_claim_names")
    if (isinstance(elsewhere, Mapping) and rules.groups_claim in elsewhere) or claims.get("hasgroups"):
        return None, _(
            "The provider did not send the list of groups, because this person is in too many. "
            "Let it send only the groups that are assigned to this application."
        )
    found = find(claims, rules.groups_claim)
    if found is None:
        return None, _("The provider sent no claim “{claim}”.").format(claim=rules.groups_claim)
    names = _texts(found)
    if len(names) > MAX_GROUPS:
        return None, _("The provider sent more than {most} groups.").format(most=MAX_GROUPS)
    return tuple(dict.fromkeys(names)), ""


def _text(value: object) -> str:
    return clean(value).strip() if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    """A list of names, or one."""
    if isinstance(value, str):
        return (value,) if value else ()
    if not isinstance(value, list | tuple):
        return ()
    return tuple(clean(each)[:255] for each in value if isinstance(each, str) and each)
