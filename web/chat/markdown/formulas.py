"""LaTeX becomes MathML: through latex2mathml, but only the elements and attributes that are listed here.

The converter takes attributes over from the formula (`\\class`, `\\style`, `\\href`, any length) and would put its text
unescaped into the page, so its tree is written out by us. Its time grows with the length of a formula, about 10 µs a
character, hence the limits; macros could grow without end and are refused.
"""

import html
import re
from functools import lru_cache
from xml.etree.ElementTree import Element

from latex2mathml import exceptions
from latex2mathml.converter import convert_to_element

from web.chat.markdown import escaping

BLOCK = '<math display="block">'

TAGS = frozenset(
    "math menclose mfrac mi mn mo mover mpadded mphantom mroot mrow mspace msqrt mstyle msub msubsup msup mtable mtd "
    "mtext mtr munder munderover".split()
)
_TOKENS = frozenset("mi mn mo mtext mspace".split())
# Colours by name or number. A length stays below one em, or below ten for a gap, so that nothing leaves its place.
_WORD = r"[a-z -]{1,40}"
_COLOUR = r"#?[\da-zA-Z]{1,20}"
_LENGTH = r"[+-]?0?(?:\.\d{1,4})?(?:em|ex|px)?|\d(?:\.\d{1,4})?(?:em|ex|px)"
ATTRIBUTES = {
    name: re.compile(pattern)
    for names, pattern in {
        "accent fence form largeop movablelimits separator stretchy": _WORD,
        "displaystyle mathvariant notation": _WORD,
        "columnalign columnlines rowlines": r"[a-z ]{1,200}",
        "columnspacing": r"[\d.em ]{1,200}",
        "rowspacing": r"[\d.empt]{1,10}",
        "scriptlevel": r"[012]",
        "mathcolor mathbackground": _COLOUR,
        "linethickness mathsize maxsize minsize rspace": _LENGTH,
        "width": _LENGTH,
        "lspace": r"0(?:em)?|0\.\d{1,3}em|-(?:0\.5|1)width",
        "height depth": r"0(?:px)?",
    }.items()
    for name in names.split()
}
_GAPS = {
    "negativethinmathspace": "-0.167em",
    "negativemediummathspace": "-0.222em",
    "negativethickmathspace": "-0.278em",
    "thinmathspace": "0.167em",
    "thickmathspace": "0.278em",
}

_LONGEST = 2_000
_DEEPEST = 60
_MACRO = re.compile(
    r"\\(?:(?:re)?newcommand|providecommand|def|let|(?:re)?newenvironment|DeclareMathOperator)(?![a-zA-Z])"
)
_ENVIRONMENT = re.compile(r"\\(begin|end)\s{0,9}\{([a-zA-Z]+\*?)\}(\{\d+\})?")
# What models write and the converter does not know, by what it knows; it would set the `&` of any other as text.
_ALIKE = {
    **dict.fromkeys("align aligned alignat alignat* alignedat eqnarray eqnarray* flalign flalign*".split(), "split"),
    **dict.fromkeys("gather gather* gathered multline multline*".split(), "matrix"),
    **dict.fromkeys("equation equation* displaymath math".split(), ""),
    "dcases": "cases",
}
_KNOWN = set("align* array cases matrix smallmatrix split".split()) | {
    f"{kind}matrix{star}" for kind in "pbBvV" for star in ("", "*")
}
_WITHOUT_EFFECT = re.compile(r"\\(?:nonumber|notag|nolimits|displaylimits|allowbreak|label\{[^{}]*\})(?![a-zA-Z])")
_FUNCTION = re.compile(r"\\(arg|sgn|sign|tr|Tr|rank|diag|Var|Cov|erf|softmax|lcm)(?![a-zA-Z])")
# A formula can be wrong in many ways, and the converter says so with whatever broke: its own exceptions, an iterator
# that ran dry, a missing child or symbol, or too many levels.
_BROKEN = (
    exceptions.DenominatorNotFoundError,
    exceptions.DoubleSubscriptsError,
    exceptions.DoubleSuperscriptsError,
    exceptions.ExtraLeftOrMissingRightError,
    exceptions.InvalidAlignmentError,
    exceptions.InvalidStyleForGenfracError,
    exceptions.InvalidWidthError,
    exceptions.LimitsMustFollowMathOperatorError,
    exceptions.MissingEndError,
    exceptions.MissingSuperScriptOrSubscriptError,
    exceptions.NoAvailableTokensError,
    exceptions.NumeratorNotFoundError,
    AttributeError,
    LookupError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
)


@lru_cache(maxsize=256)
def mathml(latex: str, *, display: bool) -> str | None:
    """None where the formula cannot be shown as one."""
    if not latex or len(latex) > _LONGEST or _MACRO.search(latex):
        return None
    try:
        tree = convert_to_element(_familiar(latex), display="block" if display else "inline")
    except _BROKEN:
        return None
    out = [BLOCK if display else "<math>"]
    if not all(_write(child, out, depth=1) for child in tree):
        return None
    return "".join([*out, "</math>"])


def _familiar(latex: str) -> str:
    latex = _FUNCTION.sub(r"\\operatorname{\1}", _WITHOUT_EFFECT.sub("", latex))
    return _ENVIRONMENT.sub(_familiar_environment, latex)


def _familiar_environment(edge: re.Match[str]) -> str:
    name = _ALIKE.get(edge[2], edge[2])
    if name and name not in _KNOWN:
        raise ValueError(f"an environment that the converter does not know: {name}")
    return f"\\{edge[1]}{{{name}}}" if name else ""


def _write(element: Element, out: list[str], *, depth: int) -> bool:
    """False when the formula has more levels than anybody could read."""
    if depth > _DEEPEST:
        return False
    # `\mathop{…}` comes as an operator with elements inside, but only a row may have them.
    tag = "mrow" if len(element) and element.tag in _TOKENS else element.tag
    if tag in TAGS:
        out.append(f"<{tag}{_attributes(element)}>")
    # The converter writes its signs as references, `&#x2211;`.
    out.append(escaping.text(html.unescape(element.text or "")))
    for child in element:
        if not _write(child, out, depth=depth + 1):
            return False
    if tag in TAGS:
        out.append(f"</{tag}>")
    return True


def _attributes(element: Element) -> str:
    kept = []
    for name, value in element.attrib.items():
        value = _GAPS.get(value, value)
        if name in ATTRIBUTES and ATTRIBUTES[name].fullmatch(value):
            kept.append(f' {name}="{escaping.attribute(value)}"')
    return "".join(kept)
