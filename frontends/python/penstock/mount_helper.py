"""What mount(8) and umount(8) run for mounts of file caches, as lines of /etc/fstab have them made.

Both look for a program named after the type of the file system. A link /sbin/mount.penstock to the
command serves the type `penstock`, and /sbin/umount.fuse.penstock the type that such a mount has
then. The command knows by its name which words it gets:

    mount.penstock PATH MOUNTPOINT [-fnsv] [-o OPTION,...]
    umount.fuse.penstock MOUNTPOINT [-flnrv]

Options are those of `penstock mount`, without their dashes, and those of mount(8) that have a
meaning here. What an option would promise and a mount does not do is refused.
"""

from __future__ import annotations

import argparse
import os
import subprocess

from penstock.errors import UsageError

# These say when something is mounted, and by whom, or are about access times, which are those of
# the files below.
_WITHOUT_MEANING = {
    *("rw", "defaults", "async", "exec", "nosuid", "nodev", "auto", "noauto", "nofail", "_netdev"),
    *("user", "users", "nouser", "owner", "group", "silent", "loud", "nolazytime"),
    *("atime", "noatime", "diratime", "nodiratime", "relatime", "norelatime", "strictatime"),
}
_REFUSED = {"noexec", "sync", "dirsync", "mand", "remount", "bind", "rbind", "move"}
_NAMES = {"ro": "read-only"}


def _mount_options() -> dict[str, argparse.Action]:
    from penstock.cli import verb_parser

    actions = verb_parser("mount")[0]._actions  # argparse has no other way to ask
    return {name[2:]: one for one in actions for name in one.option_strings if name[:2] == "--"}


def _split(text: str) -> list[str]:
    """Return the options between commas. A part like `cuda:1` belongs to the option before it."""
    words: list[str] = []
    for word in filter(None, text.split(",")):
        follows = words and words[-1].startswith("device=")
        if follows and word.partition(":")[0] in {"cpu", "cuda"}:
            words[-1] += "," + word
        else:
            words.append(word)
    return words


def mount_words(words: list[str]) -> list[str] | None:
    """Return the command line of `penstock mount`; None: nothing is to be done."""
    parser = argparse.ArgumentParser(prog="mount.penstock")
    parser.add_argument("path")
    parser.add_argument("mountpoint")
    parser.add_argument("-o", dest="options", action="append", default=[])
    for flag in "fnsv":
        parser.add_argument(f"-{flag}", action="store_true")
    for option in "tN":  # the type, and a namespace that mount(8) has entered
        parser.add_argument(f"-{option}")
    given = parser.parse_args(words)
    known = _mount_options()
    made = ["mount", given.path, given.mountpoint]
    for word in _split(",".join(given.options)):
        name, equals, value = word.partition("=")
        name = _NAMES.get(name, name)
        if name in _WITHOUT_MEANING or name.startswith("x-") or name == "comment":
            continue
        if name in _REFUSED:
            raise UsageError(name, "a file cache has no such mounts (leave the option out)")
        action = known.get(name)
        if action is None or name in {"help", "json", "foreground"}:
            if given.s:
                continue
            raise UsageError(name, "no option of penstock mount (try: penstock mount --help)")
        if (action.nargs == 0) == bool(equals):
            raise UsageError(name, "takes no value" if equals else "takes a value")
        made += [f"--{name}={value}" if equals else f"--{name}"]
    return None if given.f else made


def umount_words(words: list[str]) -> list[str] | None:
    """Return the command line of `penstock umount`; None: all is done."""
    parser = argparse.ArgumentParser(prog="umount.penstock")
    parser.add_argument("mountpoint")
    for flag in "flnrv":
        parser.add_argument(f"-{flag}", action="store_true")
    for option in "tN":
        parser.add_argument(f"-{option}")
    given = parser.parse_args(words)
    if given.l:  # now, also while it is used; its process writes back and ends after that
        subprocess.run(["umount", "-i", "-l", "--", given.mountpoint], check=True)
        return None
    return ["umount", given.mountpoint, *(["--force"] if given.f else [])]


def words_of(program: str, words: list[str]) -> list[str] | None:
    """Return the command line that these words of a program stand for; None: nothing is left."""
    name = os.path.basename(program)
    if name.startswith("umount."):
        return umount_words(words)
    return mount_words(words) if name.startswith("mount.") else words
