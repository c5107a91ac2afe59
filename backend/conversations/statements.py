"""The statements of a turn, as SQL: each is one round trip and one transaction (`backend/core/direct.py`).

Those of a running answer compare `attempt` and that the row is still running: a writer that was given up changes
nothing. `tests/conversations/test_statements.py` holds them against the models.
"""

from typing import Final, LiteralString

_INSERT_MESSAGES: Final[LiteralString] = """
INSERT INTO messages (id, created_at, conversation_id, owner_id, parent_id, speaker, text, status, finished_at,
                      send_key, is_continuation, reasoning, reason, model_id, model_name, provenance, instruction,
                      attempt, heartbeat_at, resumed, parameters)
"""

#: A conversation with its first question and the empty answer to it. No row: the person was deactivated.
ASK_FIRST: Final[LiteralString] = (
    """
WITH chat AS (
    INSERT INTO conversations (id, created_at, owner_id, title, title_source, model_id, updated_at, seen_at, leaf_id,
                               parameters)
    SELECT %(chat)s, %(now)s, users.id, %(title)s, 'first_words', %(model)s, %(now)s, %(now)s, %(answer)s,
           coalesce(%(parameters)s::jsonb, '{}')
    FROM users WHERE id = %(owner)s AND disabled_at IS NULL
    RETURNING id, owner_id, title, title_source, parameters
), written AS ("""
    + _INSERT_MESSAGES
    + """
    SELECT %(question)s::uuid, %(now)s, chat.id, owner_id, NULL::uuid, 'person', %(text)s, 'done', %(now)s,
           %(key)s::uuid, false, '', '', NULL::uuid, '', '{}'::jsonb, '', 1, NULL::timestamptz, 0, '{}'::jsonb
    FROM chat
    UNION ALL
    SELECT %(answer)s, %(now)s, chat.id, owner_id, %(question)s, 'model', '', 'queued', NULL,
           NULL, false, '', '', %(model)s, %(model_name)s, '{}', '', 1, clock_timestamp(), 0, parameters
    FROM chat
)
SELECT title, title_source, NULL::uuid AS parent_id, parameters FROM chat
"""
)

#: The next question: after the message that is named, at the root, or where the shown branch ends. No row: no such
#: conversation.
ASK: Final[LiteralString] = (
    """
WITH shown AS (
    SELECT id, leaf_id FROM conversations
    WHERE id = %(chat)s AND owner_id = %(owner)s
      AND EXISTS (SELECT FROM users WHERE id = %(owner)s AND disabled_at IS NULL)
    FOR UPDATE
), chat AS (
    UPDATE conversations
    SET model_id = %(model)s, updated_at = %(now)s, seen_at = %(now)s, leaf_id = %(answer)s,
        parameters = coalesce(%(parameters)s::jsonb, conversations.parameters)
    FROM shown WHERE conversations.id = shown.id
    RETURNING conversations.title, conversations.title_source, conversations.parameters,
              CASE WHEN %(at_root)s THEN NULL ELSE coalesce(%(after)s::uuid, shown.leaf_id) END AS parent_id
), written AS ("""
    + _INSERT_MESSAGES
    + """
    SELECT %(question)s::uuid, %(now)s, %(chat)s::uuid, %(owner)s::uuid, chat.parent_id, 'person', %(text)s, 'done',
           %(now)s, %(key)s::uuid, %(is_continuation)s, '', '', NULL::uuid, '', '{}'::jsonb, '', 1, NULL::timestamptz,
           0, '{}'::jsonb
    FROM chat
    UNION ALL
    SELECT %(answer)s, %(now)s, %(chat)s, %(owner)s, %(question)s, 'model', '', 'queued',
           NULL, NULL, false, '', '', %(model)s, %(model_name)s, '{}', '', 1, clock_timestamp(), 0, parameters
    FROM chat
)
SELECT title, title_source, parent_id, parameters FROM chat
"""
)

#: Another answer beside one that is there.
ANSWER_AGAIN: Final[LiteralString] = (
    """
WITH chat AS (
    UPDATE conversations
    SET model_id = %(model)s, seen_at = %(now)s, leaf_id = %(answer)s,
        parameters = coalesce(%(parameters)s::jsonb, parameters)
    WHERE id = %(chat)s AND owner_id = %(owner)s
    RETURNING id, parameters
)"""
    + _INSERT_MESSAGES
    + """
SELECT %(answer)s, %(now)s, chat.id, %(owner)s, %(question)s, 'model', '', 'queued', NULL,
       NULL, false, '', '', %(model)s, %(model_name)s, '{}', %(instruction)s, 1, clock_timestamp(), 0, parameters
FROM chat
RETURNING id, parameters
"""
)

#: Take an ended answer up again, without the white space it ended in: an engine that goes on brings its own. No row:
#: it is running, whole, or not the last one of the branch that is shown.
REOPEN: Final[LiteralString] = """
UPDATE messages
SET status = 'queued', attempt = attempt + 1, resumed = 0, finished_at = NULL, heartbeat_at = clock_timestamp(),
    reason = '', ended_by = NULL, rating = NULL, text = rtrim(text, E' \\t\\r\\n')
WHERE id = %(answer)s AND owner_id = %(owner)s AND text <> ''
  AND (status IN ('stopped', 'interrupted', 'failed') OR status = 'done' AND ended_by = 'length')
  AND EXISTS (SELECT FROM conversations WHERE id = conversation_id AND leaf_id = %(answer)s)
RETURNING attempt, text, reasoning, provenance, parameters
"""

#: The messages of a conversation, and whether its owner may still have answers.
MESSAGES: Final[LiteralString] = """
SELECT id, parent_id, speaker, text, instruction, context_tokens, context_from,
       EXISTS (SELECT FROM files WHERE message_id = messages.id) AS has_files,
       (SELECT disabled_at IS NULL FROM users WHERE users.id = messages.owner_id) AS is_welcome,
       model_id, (provenance->>'deployment')::uuid AS deployment_id
FROM messages WHERE conversation_id = %(chat)s
"""

#: Heartbeats and new parts of all answers of a process; returns those that are still its own, and whose person may
#: still have them: a word that they may not can be lost on its way. Where an answer comes from is said once, with its
#: first part, so that whoever takes it over knows which engine may go on with it. A number can only have been taken by
#: ourselves, in a commit whose success we did not hear of; the newer text is longer.
SAVE: Final[LiteralString] = """
WITH news AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(attempts)s::int[], %(numbers)s::int[], %(texts)s::text[],
                         %(reasonings)s::text[], %(begun)s::bool[], %(provenances)s::jsonb[])
        AS news(id, attempt, number, text, reasoning, begun, provenance)
), ours AS (
    UPDATE messages SET heartbeat_at = clock_timestamp(), status = CASE WHEN begun THEN 'streaming' ELSE status END,
                        provenance = coalesce(news.provenance, messages.provenance)
    FROM news
    WHERE messages.id = news.id AND messages.attempt = news.attempt AND status IN ('queued', 'streaming')
      AND NOT EXISTS (SELECT FROM users WHERE users.id = owner_id AND disabled_at IS NOT NULL)
    RETURNING messages.id
), parts AS (
    INSERT INTO answer_parts (message_id, attempt, number, text, reasoning)
    SELECT id, attempt, number, news.text, news.reasoning FROM news JOIN ours USING (id)
    WHERE news.text <> '' OR news.reasoning <> ''
    ON CONFLICT (message_id, attempt, number) DO UPDATE SET text = excluded.text, reasoning = excluded.reasoning
)
SELECT id FROM ours
"""

#: Fold everything into the row and count what it took. No row: somebody else ended the answer meanwhile; what the
#: engine did for it is counted all the same.
END: Final[LiteralString] = """
WITH ended AS (
    UPDATE messages
    SET text = %(text)s, reasoning = %(reasoning)s, status = %(status)s, reason = %(reason)s, ended_by = %(ended_by)s,
        finished_at = clock_timestamp(), provenance = %(provenance)s, context_tokens = %(context_tokens)s,
        context_from = %(context_from)s
    WHERE id = %(answer)s AND attempt = %(attempt)s AND status IN ('queued', 'streaming')
    RETURNING id, conversation_id, finished_at
), parts AS (
    DELETE FROM answer_parts WHERE message_id IN (SELECT id FROM ended)
), seen AS (
    UPDATE conversations SET seen_at = clock_timestamp()
    WHERE %(is_read)s AND id IN (SELECT conversation_id FROM ended)
), counted AS (
    INSERT INTO usage (id, created_at, user_id, model_id, engine_id, message_id, cause, prompt_tokens, cached_tokens,
                       completion_tokens, estimated)
    SELECT %(usage)s::uuid, clock_timestamp(), (SELECT id FROM users WHERE id = %(owner)s),
           (SELECT id FROM models WHERE id = %(model)s), (SELECT id FROM engines WHERE id = %(engine)s), %(answer)s,
           'chat', %(prompt_tokens)s::int, %(cached_tokens)s::int, %(completion_tokens)s::int, %(estimated)s
    WHERE %(engine)s::uuid IS NOT NULL
)
SELECT finished_at FROM ended
"""

_FOLDED: Final[LiteralString] = """
folded AS (
    SELECT found.id, found.text || coalesce(string_agg(part.text, '' ORDER BY number), '') AS text,
           found.reasoning || coalesce(string_agg(part.reasoning, '' ORDER BY number), '') AS reasoning
    FROM found LEFT JOIN answer_parts AS part ON part.message_id = found.id AND part.attempt = found.attempt
    GROUP BY found.id, found.text, found.reasoning
), parts AS (
    DELETE FROM answer_parts WHERE message_id IN (SELECT id FROM found)
)
"""

#: Take over answers that nobody writes any more, with what they had saved; their writers, should they live, are fenced.
#: One that only thought so far starts again from its question.
TAKE_OVER: Final[LiteralString] = (
    """
WITH found AS (
    SELECT id, attempt, text, reasoning FROM messages
    WHERE status IN ('queued', 'streaming') AND heartbeat_at < clock_timestamp() - %(silent)s::interval
      AND id <> ALL (%(ours)s::uuid[])
    ORDER BY id LIMIT 50 FOR UPDATE SKIP LOCKED
), """
    + _FOLDED
    + """
UPDATE messages
SET text = rtrim(folded.text, E' \\t\\r\\n'),
    reasoning = CASE WHEN folded.text = '' THEN '' ELSE folded.reasoning END,
    heartbeat_at = clock_timestamp(), attempt = attempt + 1, resumed = resumed + 1
FROM folded WHERE messages.id = folded.id
RETURNING messages.id, owner_id, conversation_id, model_id, attempt, messages.text, messages.reasoning, resumed,
          provenance, parameters
"""
)

#: End an answer as it stands, whoever writes it.
CLOSE: Final[LiteralString] = (
    """
WITH found AS (
    SELECT id, attempt, text, reasoning FROM messages
    WHERE id = %(answer)s AND status IN ('queued', 'streaming')
      AND (%(attempt)s::int IS NULL OR attempt = %(attempt)s)
    FOR UPDATE
), """
    + _FOLDED
    + """
UPDATE messages
SET text = folded.text, reasoning = folded.reasoning, attempt = attempt + 1, status = %(status)s,
    reason = %(reason)s, finished_at = clock_timestamp()
FROM folded WHERE messages.id = folded.id
"""
)

#: Whoever reaps next takes these over at once: their process is on its way out.
HAND_OVER: Final[LiteralString] = """
UPDATE messages SET heartbeat_at = 'epoch', resumed = resumed - 1
FROM unnest(%(ids)s::uuid[], %(attempts)s::int[]) AS mine(id, attempt)
WHERE messages.id = mine.id AND messages.attempt = mine.attempt AND status IN ('queued', 'streaming')
"""

#: An answer as its parts tell, for a copy in another process.
PROGRESS: Final[LiteralString] = """
SELECT attempt, status,
       text || coalesce((SELECT string_agg(part.text, '' ORDER BY number) FROM answer_parts AS part
           WHERE message_id = messages.id AND part.attempt = messages.attempt), '') AS text,
       reasoning || coalesce((SELECT string_agg(part.reasoning, '' ORDER BY number) FROM answer_parts AS part
           WHERE message_id = messages.id AND part.attempt = messages.attempt), '') AS reasoning
FROM messages WHERE id = %(answer)s
"""
