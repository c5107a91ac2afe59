"""How text becomes part of HTML: exactly as the sanitiser writes it, so that it finds nothing to change."""


def text(value: str) -> str:
    value = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return value.replace("\xa0", "&nbsp;").replace("\r", "\n")


def attribute(value: str) -> str:
    return text(value).replace('"', "&quot;")
