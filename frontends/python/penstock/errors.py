"""Errors that end a command with one line: `penstock: FILE: cause`."""

from __future__ import annotations


class CommandError(Exception):
    """A command failed: exit code 1. `subject` is the file or thing, `cause` what happened."""

    exit_code = 1

    def __init__(self, subject: str, cause: str) -> None:
        super().__init__(f"{subject}: {cause}" if subject else cause)


class UsageError(CommandError):
    """The command line makes no sense: exit code 2."""

    exit_code = 2
