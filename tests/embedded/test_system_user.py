import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from backend.embedded import system_user
from backend.embedded.errors import CannotRun
from backend.embedded.system_user import SystemUser

SOMEBODY = SystemUser("parley-postgres", 4711, 4711)
USER_ENTRY = 0x02


@pytest.fixture
def only_the_last_folder_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Asking the kernel as another user needs root; what it would answer does not."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(system_user, "can", lambda _user, _test, path: path != closed)
    return closed


def test_one_user_may_pass_and_nobody_else(only_the_last_folder_is_closed: Path) -> None:
    closed = only_the_last_folder_is_closed

    changed = system_user.open_the_way(SOMEBODY, closed / "var")

    entries = system_user._access_list(closed)
    assert changed == [closed]
    assert entries[USER_ENTRY, SOMEBODY.uid] == 0o1
    assert closed.stat().st_mode & 0o007 == 0


def test_opening_the_way_again_changes_nothing(only_the_last_folder_is_closed: Path) -> None:
    closed = only_the_last_folder_is_closed
    system_user.open_the_way(SOMEBODY, closed / "var")
    before = system_user._access_list(closed)

    system_user.open_the_way(SOMEBODY, closed / "var")

    assert system_user._access_list(closed) == before


def test_the_group_keeps_what_it_may(only_the_last_folder_is_closed: Path) -> None:
    closed = only_the_last_folder_is_closed
    closed.chmod(0o750)

    system_user.open_the_way(SOMEBODY, closed / "var")

    assert closed.stat().st_mode & 0o777 == 0o750  # with an access list these bits are its mask
    assert [bits for (tag, _), bits in system_user._access_list(closed).items() if tag == 0x04] == [0o5]


def test_a_file_system_without_access_lists_is_named(
    only_the_last_folder_is_closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> NoReturn:
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(os, "setxattr", unsupported)

    with pytest.raises(CannotRun, match=f"may not pass through {only_the_last_folder_is_closed} "):
        system_user.open_the_way(SOMEBODY, only_the_last_folder_is_closed / "var")


def test_a_user_without_a_name_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 987654321)

    with pytest.raises(CannotRun, match="user number 987654321 has none"):
        system_user.me()
