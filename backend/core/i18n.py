"""Every sentence a person reads passes through here, so that a translation needs no hunt through the code."""

from gettext import gettext as _, ngettext

__all__ = ["_", "ngettext"]
