"""Keep an audit: who did what to whom.

Revision: 0007, after 0006

The roles that work with the other tables may add events and read them. Two functions are what they need besides:
`audit_begin` orders those who add, and `audit_forget`, which runs as the owner, removes the oldest part of the chain,
never anything younger than thirty days."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0007"
down_revision: str | Sequence[str] | None = "0006"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_BEGIN = """
CREATE FUNCTION audit_begin(lock bigint, people uuid[]) RETURNS TABLE (number bigint, mac bytea)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    PERFORM pg_advisory_xact_lock(lock);
    -- Each statement sees what was committed while the lock was waited for.
    INSERT INTO audit_names (person_id, name, email)
        SELECT id, name, email FROM users WHERE id = ANY (people)
        ON CONFLICT (person_id) DO UPDATE SET name = excluded.name, email = excluded.email
        WHERE (audit_names.name, audit_names.email) IS DISTINCT FROM (excluded.name, excluded.email);
    RETURN QUERY
        (SELECT e.number, e.mac FROM audit_events e ORDER BY e.number DESC LIMIT 1)
        UNION ALL (SELECT a.number, a.mac FROM audit_anchors a ORDER BY a.number DESC LIMIT 1)
        UNION ALL SELECT 0::bigint, decode(repeat('00', 32), 'hex')
        ORDER BY 1 DESC LIMIT 1;
END
$$
"""

_FORGET = """
CREATE FUNCTION audit_forget(up_to bigint, its_mac bytea, moment timestamptz, its_key bytea, its_signature bytea)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    removed bigint;
BEGIN
    IF EXISTS (SELECT FROM audit_events WHERE number <= up_to AND at > clock_timestamp() - interval '30 days')
    OR NOT EXISTS (SELECT FROM audit_events WHERE number = up_to AND mac = its_mac) THEN
        RAISE EXCEPTION 'only the oldest part of the audit can be removed, and nothing younger than thirty days';
    END IF;
    INSERT INTO audit_anchors (number, mac, at, key_id, signature)
        VALUES (up_to, its_mac, moment, its_key, its_signature);
    DELETE FROM audit_events WHERE number <= up_to;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END
$$
"""

# Whoever was given the tables of the owner, whatever they are called in this installation.
_RIGHTS = """
DO $$
DECLARE
    grantee text;
BEGIN
    REVOKE EXECUTE ON FUNCTION audit_begin(bigint, uuid[]) FROM PUBLIC;
    REVOKE EXECUTE ON FUNCTION audit_forget(bigint, bytea, timestamptz, bytea, bytea) FROM PUBLIC;
    FOR grantee IN
        SELECT DISTINCT r.rolname FROM pg_class c, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
        WHERE c.oid = 'audit_events'::regclass AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('REVOKE ALL ON audit_events, audit_anchors FROM %I', grantee);
        EXECUTE format('GRANT SELECT, INSERT ON audit_events TO %I', grantee);
        EXECUTE format('GRANT SELECT ON audit_anchors TO %I', grantee);
        EXECUTE format('GRANT EXECUTE ON FUNCTION audit_begin(bigint, uuid[]) TO %I', grantee);
        EXECUTE format(
            'GRANT EXECUTE ON FUNCTION audit_forget(bigint, bytea, timestamptz, bytea, bytea) TO %I', grantee);
    END LOOP;
END
$$
"""


def upgrade() -> None:
    op.create_table(
        "audit_events",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("via", sa.String(length=20), nullable=False),
        sa.Column("actor_id", sa.Uuid(), nullable=True),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("action", sa.String(length=60), nullable=False),
        sa.Column("target_kind", sa.String(length=40), nullable=False),
        sa.Column("target_id", sa.Uuid(), nullable=True),
        sa.Column("target_name", sa.String(length=200), nullable=False),
        sa.Column("before", JSONB(), nullable=True),
        sa.Column("after", JSONB(), nullable=True),
        sa.Column("key_id", sa.LargeBinary(length=4), nullable=False),
        sa.Column("mac", sa.LargeBinary(length=32), nullable=False),
        sa.CheckConstraint("via IN ('browser', 'key', 'scim', 'host', 'system')", name=op.f("ck_audit_events_via")),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_events")),
    )
    op.create_index(op.f("ix_audit_events_at"), "audit_events", ["at"], unique=False)
    op.create_index("ix_audit_events_actor_id", "audit_events", ["actor_id", "number"], unique=False)
    op.create_index("ix_audit_events_target_id", "audit_events", ["target_id", "number"], unique=False)
    op.create_index("ix_audit_events_action", "audit_events", ["action", "number"], unique=False)
    op.create_table(
        "audit_names",
        sa.Column("person_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.PrimaryKeyConstraint("person_id", name=op.f("pk_audit_names")),
    )
    op.create_table(
        "audit_anchors",
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("mac", sa.LargeBinary(length=32), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.LargeBinary(length=4), nullable=False),
        sa.Column("signature", sa.LargeBinary(length=32), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_audit_anchors")),
    )
    for statement in (_BEGIN, _FORGET, _RIGHTS):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP FUNCTION audit_forget(bigint, bytea, timestamptz, bytea, bytea)")
    op.execute("DROP FUNCTION audit_begin(bigint, uuid[])")
    op.drop_table("audit_anchors")
    op.drop_table("audit_names")
    op.drop_table("audit_events")
