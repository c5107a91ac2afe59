"""Every sentence a person reads passes through here, so that a translation needs no hunt through the code."""

from gettext import NullTranslations

# The functions of the module `gettext` look for catalogues on the disk at every call.
_catalogue = NullTranslations()

_ = _catalogue.gettext
ngettext = _catalogue.ngettext

__all__ = ["_", "ngettext"]
