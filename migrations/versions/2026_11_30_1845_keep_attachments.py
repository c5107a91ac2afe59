"""Keep attachments: files of messages, and their bytes once per person.

Revision: 0003, after 0002"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | Sequence[str] | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


# As in 0001.
_MINE = "owner_id = nullif(current_setting('parley.person', true), '')::uuid"
_WORKER = "current_setting('parley.worker', true) = 'on'"


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column(
            "kind",
            sa.Enum(
                "text", "pdf", "docx", "png", "jpeg", name="kind", native_enum=False, create_constraint=True, length=20
            ),
            nullable=False,
        ),
        sa.Column("text", sa.String(), nullable=True),
        sa.Column("width", sa.Integer(), nullable=True),
        sa.Column("height", sa.Integer(), nullable=True),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("(kind IN ('png', 'jpeg')) = (text IS NULL)", name=op.f("ck_blobs_document_has_text")),
        sa.CheckConstraint(
            "(text IS NULL) = (width IS NOT NULL AND height IS NOT NULL)", name=op.f("ck_blobs_picture_has_size")
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_blobs_owner_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blobs")),
        sa.UniqueConstraint("id", "owner_id", name=op.f("uq_blobs_id")),
        sa.UniqueConstraint("owner_id", "digest", name="uq_blobs_digest"),
    )
    op.create_table(
        "file_chunks",
        sa.Column("blob_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["blob_id"], ["blobs.id"], name=op.f("fk_file_chunks_blob_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("blob_id", "number", name=op.f("pk_file_chunks")),
    )
    op.create_table(
        "files",
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("blob_id", sa.Uuid(), nullable=False),
        sa.Column("message_id", sa.Uuid(), nullable=True),
        sa.Column("name", sa.String(length=150), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["blob_id", "owner_id"], ["blobs.id", "blobs.owner_id"], name="fk_files_blob"),
        sa.ForeignKeyConstraint(["message_id"], ["messages.id"], name=op.f("fk_files_message_id"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name=op.f("fk_files_owner_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_files")),
    )
    op.create_index("ix_files_blob_id", "files", ["blob_id"], unique=False)
    op.create_index("ix_files_message_id", "files", ["message_id"], unique=False)
    op.create_index("ix_files_owner_id", "files", ["owner_id"], unique=False)
    op.create_index(
        "ix_files_unsent", "files", ["created_at"], unique=False, postgresql_where=sa.text("message_id IS NULL")
    )
    for table in ("blobs", "files"):
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY mine ON {table} USING ({_MINE} OR {_WORKER})")
    op.execute("ALTER TABLE file_chunks ENABLE ROW LEVEL SECURITY")
    op.execute(
        f"CREATE POLICY mine ON file_chunks USING ({_WORKER} OR EXISTS"
        " (SELECT FROM blobs WHERE blobs.id = file_chunks.blob_id))"
    )


def downgrade() -> None:
    op.drop_table("files")
    op.drop_table("file_chunks")
    op.drop_table("blobs")
