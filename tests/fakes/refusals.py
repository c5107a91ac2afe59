"""What vLLM refuses before it answers, in its order and its words."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.fakes import tokens
from tests.fakes.script import Status, refusal

LOADING = Status(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}})
"""llama.cpp, on every route; vLLM does not listen yet."""

BUSY = refusal(
    503,
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.",
    "Service Unavailable",
)


def bad_json(raw: bytes) -> Status:
    return _invalid("json_invalid", f"body.{len(raw)}", "JSON decode error")


def unknown_model(name: str, known: Sequence[str]) -> Status:
    message = f"The model `{name}` does not exist. Valid aliases: {', '.join(known)}."
    return refusal(404, message, "NotFoundError", "model")


def malformed(body: Mapping[str, Any], *, sees: bool) -> Status | None:
    """The fields themselves, before anything is made of them."""
    limit, temperature, salt = body.get("max_tokens"), body.get("temperature"), body.get("cache_salt")
    if limit is not None and not isinstance(limit, int):
        return _invalid("int_parsing", "body.max_tokens", "Input should be a valid integer")
    if isinstance(temperature, int | float) and temperature < 0:
        message = f"temperature must be non-negative, got {float(temperature)}."
        return refusal(400, f"{message} (parameter=temperature, value={float(temperature)})", param="temperature")
    if salt is not None and (not isinstance(salt, str) or not 0 < len(salt) <= 128 or set(salt) & set("@/\\\0")):
        message = "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', '\\\\', or NUL."
        return refusal(400, f"{message} (parameter=cache_salt)", param="cache_salt")
    if body.get("stream_options") and not body.get("stream"):
        return refusal(400, "Stream options can only be defined when `stream=True`.", param="stream_options")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return refusal(400, "Cannot apply chat template to an empty conversation. Provide at least one message.")
    if body.get("continue_final_message") and body.get("add_generation_prompt", True):
        both = "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
        return refusal(400, both, param="continue_final_message")
    if not sees and any(_has_picture(message.get("content")) for message in messages):
        return refusal(400, f"{body.get('model')} is not a multimodal model")
    return None


def _has_picture(content: object) -> bool:
    return isinstance(content, list) and any(part.get("type") == "image_url" for part in content)


def disorder(messages: Sequence[Mapping[str, Any]], *, alternating: bool, system_role: bool) -> Status | None:
    """What the chat templates of some models refuse."""
    roles = [str(message.get("role")) for message in messages]
    if "system" in roles and not system_role:
        return refusal(400, "System role not supported")
    if not alternating:
        return None
    turns = roles[1:] if roles[:1] == ["system"] else roles
    if any(role != ("user", "assistant")[place % 2] for place, role in enumerate(turns)):
        return refusal(400, "Conversation roles must alternate user/assistant/user/assistant/...")
    if any(not message.get("content") for message in messages):
        return refusal(400, "Message content must not be empty")
    return None


def too_long(body: Mapping[str, Any], window: int) -> Status | None:
    limit = body.get("max_tokens")
    if limit is not None and limit > window:
        message = f"max_tokens={limit} cannot be greater than max_model_len={window}."
        advice = "Please request fewer output tokens."
        return refusal(400, f"{message} {advice} (parameter=max_tokens, value={limit})", param="max_tokens")
    count = len(
        tokens.encode_chat(
            body["messages"],
            answers=body.get("add_generation_prompt", True),
            continues=body.get("continue_final_message", False),
        )
    )
    if count > window:
        message = (
            f"This model's maximum context length is {window} tokens. However, your prompt contains {count} input "
            "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
            "prompt."
        )
        return refusal(400, f"{message} (parameter=input_tokens, value={count})", param="input_tokens")
    return refusal(400, "max_tokens must be at least 1, got 0.", param="max_tokens") if count == window else None


def _invalid(kind: str, where: str, message: str) -> Status:
    text = f"1 validation error:\n  {{'type': '{kind}', 'loc': '{where}', 'msg': '{message}'}}"
    return refusal(400, text, "Bad Request", where)
