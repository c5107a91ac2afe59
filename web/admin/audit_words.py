"""How the page of the audit says what was recorded. What has no words of its own is shown as it is called."""

from collections.abc import Mapping
from typing import Any, Final

from backend.audit.acting import Via
from backend.audit.service import Action
from backend.core.i18n import _

_LONGEST = 120


LABELS: Final[Mapping[str, str]] = {
    Action.SIGNED_IN: _("Signed in"),
    Action.SIGN_IN_FAILED: _("Sign-in refused"),
    Action.SIGNED_OUT: _("Signed out"),
    Action.PERSON_ADDED: _("Person added"),
    Action.PERSON_CHANGED: _("Profile changed"),
    Action.ROLE_CHANGED: _("Role changed"),
    Action.PERSON_DISABLED: _("Person deactivated"),
    Action.PERSON_ENABLED: _("Person reactivated"),
    Action.LINK_MADE: _("One-time link made"),
    Action.PASSWORD_SET: _("Password set"),
    Action.GROUP_ADDED: _("Group added"),
    Action.GROUP_CHANGED: _("Group changed"),
    Action.GROUP_REMOVED: _("Group removed"),
    Action.MEMBER_ADDED: _("Member added to group"),
    Action.MEMBER_REMOVED: _("Member removed from group"),
    Action.ENGINE_ADDED: _("Engine added"),
    Action.ENGINE_CHANGED: _("Engine changed"),
    Action.ENGINE_ENABLED: _("Engine put into service"),
    Action.ENGINE_DISABLED: _("Engine taken out of service"),
    Action.ENGINE_DRAINED: _("Engine drained"),
    Action.ENGINE_UNDRAINED: _("Engine taken back from draining"),
    Action.ENGINE_REMOVED: _("Engine removed"),
    Action.ENGINE_LOAD: _("Loading a model asked for"),
    Action.ENGINE_UNLOAD: _("Unloading a model asked for"),
    Action.MODEL_CHANGED: _("Model changed"),
    Action.MODEL_MOVED: _("Model moved in the list"),
    Action.MODEL_PUBLISHED: _("Model published"),
    Action.MODEL_UNPUBLISHED: _("Model withdrawn"),
    Action.MODEL_LEFT: _("Model taken off an engine"),
    Action.MODEL_PINNED: _("Revision pinned"),
    Action.MODEL_UNPINNED: _("Pin removed"),
    Action.DEFAULT_CHOSEN: _("Default model chosen"),
    Action.TRIAL_BEGUN: _("Trial begun"),
    Action.TRIAL_CHANGED: _("Trial changed"),
    Action.TRIAL_PROMOTED: _("Trial promoted"),
    Action.TRIAL_ROLLED_BACK: _("Trial rolled back"),
    Action.TRIAL_RESTORED: _("Revision restored"),
    Action.KEY_MADE: _("API key made"),
    Action.KEY_REVOKED: _("API key revoked"),
    Action.BENCH_STARTED: _("Measurement started"),
    Action.BENCH_CANCELLED: _("Measurement ended early"),
    Action.BENCH_DELETED: _("Measurement deleted"),
    Action.COMPANY_NAMED: _("Company named"),
    Action.AUDIT_EXPORTED: _("Audit exported"),
    Action.AUDIT_SHORTENED: _("Oldest records removed"),
    Action.PERSON_ERASED: _("Person erased"),
    Action.SIGNED_OUT_BY_PROVIDER: _("Signed out by the company sign-in"),
    Action.PERSON_PROVISIONED: _("Person added by the company sign-in"),
    Action.IDENTITY_LINKED: _("Company sign-in connected"),
    Action.IDENTITY_UNLINKED: _("Company sign-in disconnected"),
    Action.PROVIDER_ADDED: _("Company sign-in added"),
    Action.PROVIDER_CHANGED: _("Company sign-in changed"),
    Action.PROVIDER_REMOVED: _("Company sign-in removed"),
    Action.DATA_EXPORTED: _("Own data taken along"),
    Action.POLICY_CHANGED: _("Policy changed"),
    Action.SIGN_IN_RULES_CHANGED: _("Rules of signing in changed"),
    Action.SESSION_ENDED: _("Browser signed out"),
    Action.SECOND_FACTOR_ADDED: _("Authenticator app set up"),
    Action.SECOND_FACTOR_REMOVED: _("Authenticator app removed"),
    Action.RECOVERY_CODES_MADE: _("Recovery codes made"),
    Action.RECOVERY_CODE_USED: _("Recovery code used"),
    Action.PASSKEY_ADDED: _("Passkey added"),
    Action.PASSKEY_REMOVED: _("Passkey removed"),
}


def action_label(action: str) -> str:
    return LABELS.get(action, action)


def via_label(via: Via) -> str:
    match via:
        case Via.BROWSER:
            return _("in a browser")
        case Via.KEY:
            return _("with an API key")
        case Via.SCIM:
            return _("directory (SCIM)")
        case Via.HOST:
            return _("command line")
    return _("Parley itself")


def what_changed(before: dict[str, Any] | None, after: dict[str, Any] | None) -> tuple[tuple[str, str, str], ...]:
    """What, before, after; nothing that was and is empty."""
    before, after = before or {}, after or {}
    found = ((name.replace("_", " "), _said(before.get(name)), _said(after.get(name))) for name in {**before, **after})
    return tuple(change for change in found if change[1] or change[2])


def _said(value: object) -> str:
    match value:
        case None | "" | []:
            return ""
        case bool():
            return _("yes") if value else _("no")
        case list():
            text = ", ".join(map(str, value))
        case _:
            text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
