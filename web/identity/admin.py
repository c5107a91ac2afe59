"""Administration: where people sign in with an account of the company. A test shows what would happen."""

from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Depends, Form, Request
from sqlalchemy.ext.asyncio import AsyncSession
from starlette.responses import HTMLResponse, RedirectResponse, Response

from backend.core.db import Session
from backend.core.errors import AppError, BadInput, Conflict
from backend.core.text import clean, one_line
from backend.identity import providers, queries
from backend.identity.entrance import Doors
from backend.identity.models import IdentityProvider, Source
from backend.identity.pending import Aim, Pending
from backend.identity.providers import Draft
from backend.identity.rules import Groups, Rules, Unknown, group_map_of, group_map_text, listed
from web.dependencies import AllSessions, CurrentUser, IdentityDoors
from web.forms import plain_form
from web.identity.routes import leave_for
from web.rendering import page

router = APIRouter(prefix="/admin/sign-in/providers", dependencies=[Depends(plain_form)])


@dataclass(frozen=True)
class ProviderRow:
    id: UUID
    name: str
    issuer: str
    enabled: bool
    is_fixed: bool
    people: int


@dataclass(frozen=True)
class ProviderForm:
    """What is stored or was typed; a secret is never shown again."""

    name: str = ""
    slug: str = ""
    issuer: str = ""
    client_id: str = ""
    secret: str = ""
    scopes: str = "openid profile email"
    unknown: str = Unknown.REFUSE.value
    link_by_email: bool = False
    name_claim: str = "name"
    email_claim: str = "email"
    groups: str = Groups.IGNORE.value
    groups_claim: str = "groups"
    group_map: str = ""
    blocked_groups: str = ""
    role_claim: str = ""
    admin_values: str = ""
    logout: bool = False

    @classmethod
    def of(cls, provider: IdentityProvider) -> "ProviderForm":
        rules = Rules.stored(provider.rules)
        return cls(
            name=provider.name,
            slug=provider.slug,
            issuer=provider.issuer,
            client_id=provider.client_id,
            scopes=rules.scopes,
            unknown=rules.unknown,
            link_by_email=rules.link_by_email,
            name_claim=rules.name_claim,
            email_claim=rules.email_claim,
            groups=rules.groups,
            groups_claim=rules.groups_claim,
            group_map=group_map_text(rules),
            blocked_groups="\n".join(rules.blocked_groups),
            role_claim=rules.role_claim,
            admin_values="\n".join(rules.admin_values),
            logout=rules.logout,
        )

    def draft(self) -> Draft:
        """Raises BadInput for a list that cannot be read."""
        rules = Rules(
            scopes=" ".join(self.scopes.split()),
            unknown=Unknown(self.unknown) if self.unknown in set(Unknown) else Unknown.REFUSE,
            link_by_email=self.link_by_email,
            name_claim=self.name_claim,
            email_claim=self.email_claim,
            groups=Groups(self.groups) if self.groups in set(Groups) else Groups.IGNORE,
            groups_claim=self.groups_claim,
            group_map=group_map_of(self.group_map),
            blocked_groups=listed(self.blocked_groups),
            role_claim=self.role_claim,
            admin_values=listed(self.admin_values),
            logout=self.logout,
        )
        return Draft(self.name, self.slug, self.issuer, self.client_id, self.secret, rules)


async def _typed(
    name: Annotated[str, Form()] = "",
    slug: Annotated[str, Form()] = "",
    issuer: Annotated[str, Form()] = "",
    client_id: Annotated[str, Form()] = "",
    secret: Annotated[str, Form()] = "",
    scopes: Annotated[str, Form()] = "",
    unknown: Annotated[str, Form()] = "",
    link_by_email: Annotated[str, Form()] = "",
    name_claim: Annotated[str, Form()] = "",
    email_claim: Annotated[str, Form()] = "",
    groups: Annotated[str, Form()] = "",
    groups_claim: Annotated[str, Form()] = "",
    group_map: Annotated[str, Form()] = "",
    blocked_groups: Annotated[str, Form()] = "",
    role_claim: Annotated[str, Form()] = "",
    admin_values: Annotated[str, Form()] = "",
    logout: Annotated[str, Form()] = "",
) -> ProviderForm:
    def line(text: str) -> str:
        return one_line(text, 2000)

    return ProviderForm(
        name=clean(name),
        slug=line(slug),
        issuer=line(issuer),
        client_id=line(client_id),
        secret=clean(secret).strip(),
        scopes=line(scopes),
        unknown=line(unknown),
        link_by_email=bool(link_by_email),
        name_claim=line(name_claim),
        email_claim=line(email_claim),
        groups=line(groups),
        groups_claim=line(groups_claim),
        group_map=clean(group_map),
        blocked_groups=clean(blocked_groups),
        role_claim=line(role_claim),
        admin_values=clean(admin_values),
        logout=bool(logout),
    )


async def _provider(provider_id: UUID, session: Session) -> IdentityProvider:
    return await providers.find(session, provider_id)


Typed = Annotated[ProviderForm, Depends(_typed)]
OneProvider = Annotated[IdentityProvider, Depends(_provider)]


@router.get("")
async def show_all(request: Request, session: Session) -> HTMLResponse:
    people: dict[str, int] = dict((await session.execute(queries.counts())).all())
    rows = [
        ProviderRow(
            each.id, each.name, each.issuer, each.enabled, each.source is Source.DEPLOYMENT, people.get(each.issuer, 0)
        )
        for each in await session.scalars(queries.providers())
    ]
    return page(request, "identity/providers.html", rows=rows, problem=None)


@router.get("/new")
async def new(request: Request, doors: IdentityDoors) -> HTMLResponse:
    return _page(request, doors, None, ProviderForm())


@router.post("")
async def add(request: Request, session: Session, doors: IdentityDoors, form: Typed) -> Response:
    try:
        async with session.begin_nested():
            provider = await providers.add(session, doors.secrets, form.draft())
    except AppError as error:
        return _page(request, doors, None, form, error=error)
    return RedirectResponse(f"{router.prefix}/{provider.id}?saved=1", status_code=303)


@router.get("/{provider_id}")
async def one(request: Request, provider: OneProvider, doors: IdentityDoors, saved: str = "") -> HTMLResponse:
    return _page(request, doors, provider, ProviderForm.of(provider), saved=bool(saved))


@router.post("/{provider_id}")
async def change(
    request: Request, provider: OneProvider, session: Session, doors: IdentityDoors, form: Typed
) -> Response:
    issuer = provider.issuer
    try:
        async with session.begin_nested():
            await providers.change(session, doors.secrets, provider, replace(form, slug=provider.slug).draft())
    except AppError as error:
        await session.refresh(provider)
        return _page(request, doors, provider, form, error=error)
    doors.oidc.discovery.forget(issuer)
    return RedirectResponse(f"{router.prefix}/{provider.id}?saved=1", status_code=303)


@router.get("/{provider_id}/test")
async def test(
    request: Request, provider_id: UUID, db: AllSessions, doors: IdentityDoors, user: CurrentUser
) -> Response:
    """To the provider and back; the way back shows what would happen (`trial.py`)."""
    async with db.begin() as session:
        provider = await providers.find(session, provider_id)
    doors.oidc.discovery.forget(provider.issuer)
    return await leave_for(request, doors, Pending.begin(provider.slug, "/admin", Aim.TEST, user.id))


@router.post("/{provider_id}/enable")
async def enable(request: Request, provider: OneProvider, session: Session, doors: IdentityDoors) -> Response:
    return await _switch(request, session, provider, doors, on=True)


@router.post("/{provider_id}/disable")
async def disable(request: Request, provider: OneProvider, session: Session, doors: IdentityDoors) -> Response:
    return await _switch(request, session, provider, doors, on=False)


@router.post("/{provider_id}/remove")
async def remove(request: Request, provider: OneProvider, session: Session, doors: IdentityDoors) -> Response:
    try:
        await providers.remove(session, provider)
    except Conflict as error:
        return _page(request, doors, provider, ProviderForm.of(provider), error=error)
    return RedirectResponse(router.prefix, status_code=303)


async def _switch(
    request: Request, session: AsyncSession, provider: IdentityProvider, doors: Doors, *, on: bool
) -> Response:
    try:
        await providers.switch(session, provider, on=on)
    except Conflict as error:
        return _page(request, doors, provider, ProviderForm.of(provider), error=error)
    return RedirectResponse(f"{router.prefix}/{provider.id}", status_code=303)


def _page(
    request: Request,
    doors: Doors,
    provider: IdentityProvider | None,
    form: ProviderForm,
    *,
    saved: bool = False,
    error: AppError | None = None,
) -> HTMLResponse:
    fields = error.fields if isinstance(error, BadInput) else {}
    return page(
        request,
        "identity/provider.html",
        status=error.status if error else 200,
        provider=provider,
        form=form,
        is_fixed=provider is not None and provider.source is Source.DEPLOYMENT,
        origin=doors.settings.origin,
        saved=saved,
        errors=fields,
        problem=str(error) if error and not fields else None,
    )
