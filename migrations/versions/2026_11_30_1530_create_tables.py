"""Create the tables, and the row-level security below the queries.

Revision: 0001, the first"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0001"
down_revision: str | Sequence[str] | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


# Whose rows a transaction sees: those of the person it acts for, or everybody's when it is one of our own loops.
# A setting that was never made reads as NULL, and one that ended with its transaction as '': both see nothing.
_MINE = "owner_id = nullif(current_setting('parley.person', true), '')::uuid"
_WORKER = "current_setting('parley.worker', true) = 'on'"


def upgrade() -> None:
    op.create_table(
        "engines",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("url", sa.String(length=500), nullable=False),
        sa.Column("sealed_api_key", sa.LargeBinary(), nullable=True),
        sa.Column("kind", sa.String(length=20), nullable=True),
        sa.Column("version", sa.String(length=80), nullable=True),
        sa.Column(
            "source",
            sa.Enum(
                "embedded",
                "environment",
                "database",
                name="source",
                native_enum=False,
                create_constraint=True,
                length=20,
            ),
            nullable=False,
        ),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_engines")),
        sa.UniqueConstraint("name", name=op.f("uq_engines_name")),
    )
    op.create_table(
        "models",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("description", sa.String(length=200), nullable=False),
        sa.Column("system_prompt", sa.String(), nullable=False),
        sa.Column("system_role", sa.Boolean(), nullable=False),
        sa.Column("temperature", sa.Double(), nullable=True),
        sa.Column("max_tokens", sa.Integer(), nullable=True),
        sa.Column("published", sa.Boolean(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("max_tokens IS NULL OR max_tokens > 0", name=op.f("ck_models_max_tokens")),
        sa.CheckConstraint("temperature IS NULL OR temperature BETWEEN 0 AND 2", name=op.f("ck_models_temperature")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_models")),
        sa.UniqueConstraint("name", name=op.f("uq_models_name")),
    )
    op.create_table(
        "settings",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_settings")),
    )
    op.create_table(
        "sign_in_throttles",
        sa.Column("account", sa.LargeBinary(length=32), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("last_failure_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("blocked_until", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("account", name=op.f("pk_sign_in_throttles")),
    )
    op.create_table(
        "users",
        sa.Column("email", sa.String(length=254), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column(
            "role",
            sa.Enum("admin", "member", name="role", native_enum=False, create_constraint=True, length=20),
            nullable=False,
        ),
        sa.Column("password_hash", sa.String(), nullable=True),
        sa.Column("disabled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column(
            "theme",
            sa.Enum("system", "light", "dark", name="theme", native_enum=False, create_constraint=True, length=20),
            nullable=False,
        ),
        sa.Column("time_zone", sa.String(length=64), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("email = lower(email)", name=op.f("ck_users_email_lower")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint("email", name=op.f("uq_users_email")),
    )
    op.create_table(
        "conversations",
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("title", sa.String(length=200), nullable=False),
        sa.Column(
            "title_source",
            sa.Enum(
                "first_words",
                "model",
                "person",
                name="title_source",
                native_enum=False,
                create_constraint=True,
                length=20,
            ),
            nullable=False,
        ),
        sa.Column("model_id", sa.Uuid(), nullable=True),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["model_id"], ["models.id"], name=op.f("fk_conversations_model_id"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_conversations_owner_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_conversations")),
        sa.UniqueConstraint("id", "owner_id", name=op.f("uq_conversations_id")),
    )
    op.create_index(op.f("ix_conversations_model_id"), "conversations", ["model_id"], unique=False)
    op.create_index("ix_conversations_sidebar", "conversations", ["owner_id", "updated_at", "id"], unique=False)
    op.create_table(
        "deployments",
        sa.Column("engine_id", sa.Uuid(), nullable=False),
        sa.Column("model_id", sa.Uuid(), nullable=True),
        sa.Column("upstream_name", sa.String(length=300), nullable=False),
        sa.Column("context_length", sa.Integer(), nullable=True),
        sa.Column("missing_since", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["engine_id"], ["engines.id"], name=op.f("fk_deployments_engine_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_deployments_model_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deployments")),
        sa.UniqueConstraint(
            "engine_id",
            "upstream_name",
            "model_id",
            name=op.f("uq_deployments_engine_id"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_index("ix_deployments_model_id", "deployments", ["model_id"], unique=False)
    op.create_table(
        "login_sessions",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("token_digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("last_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("time_zone", sa.String(length=64), nullable=True),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("user_agent", sa.String(length=300), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_login_sessions_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_login_sessions")),
        sa.UniqueConstraint("token_digest", name=op.f("uq_login_sessions_token_digest")),
    )
    op.create_index(op.f("ix_login_sessions_user_id"), "login_sessions", ["user_id"], unique=False)
    op.create_table(
        "one_time_links",
        sa.Column(
            "purpose",
            sa.Enum(
                "setup", "invitation", "reset", name="purpose", native_enum=False, create_constraint=True, length=20
            ),
            nullable=False,
        ),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("token_digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("(purpose = 'setup') = (user_id IS NULL)", name=op.f("ck_one_time_links_setup_has_no_user")),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_one_time_links_user_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_one_time_links")),
        sa.UniqueConstraint("token_digest", name=op.f("uq_one_time_links_token_digest")),
    )
    op.create_index(op.f("ix_one_time_links_user_id"), "one_time_links", ["user_id"], unique=False)
    op.create_table(
        "usage",
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("model_id", sa.Uuid(), nullable=True),
        sa.Column("engine_id", sa.Uuid(), nullable=True),
        sa.Column("message_id", sa.Uuid(), nullable=True),
        sa.Column(
            "cause",
            sa.Enum("chat", "title", name="cause", native_enum=False, create_constraint=True, length=20),
            nullable=False,
        ),
        sa.Column("prompt_tokens", sa.Integer(), nullable=False),
        sa.Column("cached_tokens", sa.Integer(), nullable=True),
        sa.Column("completion_tokens", sa.Integer(), nullable=False),
        sa.Column("estimated", sa.Boolean(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["engine_id"], ["engines.id"], name=op.f("fk_usage_engine_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_usage_model_id"), ondelete="SET NULL"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_usage_user_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage")),
    )
    op.create_index(op.f("ix_usage_engine_id"), "usage", ["engine_id"], unique=False)
    op.create_index(op.f("ix_usage_message_id"), "usage", ["message_id"], unique=False)
    op.create_index(op.f("ix_usage_model_id"), "usage", ["model_id"], unique=False)
    op.create_index("ix_usage_user_id", "usage", ["user_id", "created_at"], unique=False)
    op.create_table(
        "messages",
        sa.Column("conversation_id", sa.Uuid(), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("parent_id", sa.Uuid(), nullable=True),
        sa.Column(
            "speaker",
            sa.Enum("person", "model", name="speaker", native_enum=False, create_constraint=True, length=20),
            nullable=False,
        ),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column(
            "status",
            sa.Enum(
                "queued",
                "streaming",
                "done",
                "stopped",
                "interrupted",
                "failed",
                name="status",
                native_enum=False,
                create_constraint=True,
                length=20,
            ),
            nullable=False,
        ),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("send_key", sa.Uuid(), nullable=True),
        sa.Column("reasoning", sa.String(), nullable=False),
        sa.Column("reason", sa.String(length=300), nullable=False),
        sa.Column("ended_by", sa.String(length=40), nullable=True),
        sa.Column("model_id", sa.Uuid(), nullable=True),
        sa.Column("model_name", sa.String(length=100), nullable=False),
        sa.Column("provenance", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("(speaker = 'person') = (send_key IS NOT NULL)", name=op.f("ck_messages_question_has_key")),
        sa.CheckConstraint(
            "(status IN ('queued', 'streaming')) = (finished_at IS NULL)", name=op.f("ck_messages_finished")
        ),
        sa.CheckConstraint("speaker = 'model' OR status = 'done'", name=op.f("ck_messages_question_is_done")),
        sa.ForeignKeyConstraint(
            ["conversation_id", "owner_id"],
            ["conversations.id", "conversations.owner_id"],
            name="fk_messages_conversation",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["conversation_id", "parent_id"],
            ["messages.conversation_id", "messages.id"],
            name="fk_messages_parent",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"], name=op.f("fk_messages_model_id"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.UniqueConstraint("conversation_id", "id", name=op.f("uq_messages_conversation_id")),
    )
    op.create_index(
        "ix_messages_heartbeat",
        "messages",
        ["heartbeat_at"],
        unique=False,
        postgresql_where=sa.text("status IN ('queued', 'streaming')"),
    )
    op.create_index(op.f("ix_messages_model_id"), "messages", ["model_id"], unique=False)
    op.create_index("ix_messages_parent", "messages", ["conversation_id", "parent_id"], unique=False)
    op.create_index(
        "uq_messages_running",
        "messages",
        ["conversation_id"],
        unique=True,
        postgresql_where=sa.text("status IN ('queued', 'streaming')"),
    )
    op.create_index("uq_messages_send_key", "messages", ["owner_id", "send_key"], unique=True)
    op.create_table(
        "answer_parts",
        sa.Column("message_id", sa.Uuid(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("reasoning", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name=op.f("fk_answer_parts_message_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("message_id", "attempt", "number", name=op.f("pk_answer_parts")),
    )
    for table in ("conversations", "messages"):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY mine ON {table} USING ({_MINE} OR {_WORKER})")
    op.execute("ALTER TABLE answer_parts ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY mine ON answer_parts USING ({_WORKER} OR EXISTS"
        " (SELECT FROM messages WHERE messages.id = answer_parts.message_id))"
    )


def downgrade() -> None:
    op.drop_table("answer_parts")
    op.drop_index("uq_messages_send_key", table_name="messages")
    op.drop_index(
        "uq_messages_running", table_name="messages", postgresql_where=sa.text("status IN ('queued', 'streaming')")
    )
    op.drop_index("ix_messages_parent", table_name="messages")
    op.drop_index(op.f("ix_messages_model_id"), table_name="messages")
    op.drop_index(
        "ix_messages_heartbeat", table_name="messages", postgresql_where=sa.text("status IN ('queued', 'streaming')")
    )
    op.drop_table("messages")
    op.drop_index("ix_usage_user_id", table_name="usage")
    op.drop_index(op.f("ix_usage_model_id"), table_name="usage")
    op.drop_index(op.f("ix_usage_message_id"), table_name="usage")
    op.drop_index(op.f("ix_usage_engine_id"), table_name="usage")
    op.drop_table("usage")
    op.drop_index(op.f("ix_one_time_links_user_id"), table_name="one_time_links")
    op.drop_table("one_time_links")
    op.drop_index(op.f("ix_login_sessions_user_id"), table_name="login_sessions")
    op.drop_table("login_sessions")
    op.drop_index("ix_deployments_model_id", table_name="deployments")
    op.drop_table("deployments")
    op.drop_index("ix_conversations_sidebar", table_name="conversations")
    op.drop_index(op.f("ix_conversations_model_id"), table_name="conversations")
    op.drop_table("conversations")
    op.drop_table("users")
    op.drop_table("sign_in_throttles")
    op.drop_table("settings")
    op.drop_table("models")
    op.drop_table("engines")
