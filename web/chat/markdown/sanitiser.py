"""The last step of every rendering: what is not on this list does not reach a page.

Our own output passes unchanged. The list is here for the day on which the steps before have a fault.
"""

import re

import nh3

from web.chat.markdown import formulas, links
from web.chat.markdown.colours import CLASSES

_TAGS = (
    set("p br hr h2 h3 h4 h5 h6 ul ol li blockquote pre code strong em del a sup figure figcaption span input".split())
    | set("div table thead tbody tr th td".split())
    | formulas.TAGS
)
_ANYTHING = re.compile(r".*", re.DOTALL)
_NOTE = re.compile(r"fn-[\w-]+")
_NOTE_LINK = re.compile(r"#fn-[\w-]+")
_VALUES = {
    "a": {"title": _ANYTHING, "id": _NOTE, "aria-label": _ANYTHING},
    "div": {"role": re.compile("region"), "aria-label": _ANYTHING, "tabindex": re.compile("0")},
    "input": {
        "type": re.compile("checkbox"),
        "disabled": re.compile(""),
        "checked": re.compile(""),
        "aria-label": _ANYTHING,
    },
    "li": {"id": _NOTE},
    "math": {"display": re.compile("block")},
    "ol": {"start": re.compile(r"\d{1,9}")},
    "pre": {"tabindex": re.compile("0"), "aria-label": _ANYTHING},
    "td": {"align": re.compile("center")},
    "th": {"align": re.compile("center"), "scope": re.compile("col")},
} | dict.fromkeys(formulas.TAGS - {"math"}, formulas.ATTRIBUTES)
_DIRECTION = re.compile("auto|ltr")


def _attribute(tag: str, name: str, value: str) -> str | None:
    if name == "href":
        return value if _NOTE_LINK.fullmatch(value) else links.safe(value)
    if name in ("class", "rel"):  # `allowed_classes` and `link_rel` have seen to these
        return value
    pattern = _DIRECTION if name == "dir" else _VALUES.get(tag, {}).get(name)
    return value if pattern and pattern.fullmatch(value) else None


_CLEANER = nh3.Cleaner(
    tags=_TAGS,
    attributes={tag: set(values) for tag, values in _VALUES.items()} | {"a": {*_VALUES["a"], "href"}, "*": {"dir"}},
    attribute_filter=_attribute,
    allowed_classes={
        "div": {"scroll"},
        "figure": {"code"},
        "ol": {"footnotes"},
        "p": {"plain"},
        "span": CLASSES,
        "td": {"number"},
        "th": {"number"},
    },
    # Any other `input` would be a field to type into.
    set_tag_attribute_values={"input": {"type": "checkbox", "disabled": ""}},
    url_schemes={"http", "https", "mailto"},
    link_rel=links.REL,
)


def clean(html: str) -> str:
    # A carriage return written as a reference would be a line feed when it is read the next time.
    return _CLEANER.clean(html).replace("\r", "\n")
