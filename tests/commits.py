"""Checks the messages of the last commits: subject, and a body that says why.

Only commits whose own tree has this file are checked, so neither history from before the rule nor a
branch that began before it fails. Without .git (a source distribution) nothing is checked; a
shallow clone has fewer commits, which are checked.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

COMMITS = 20  # how many of the last commits are checked
SUBJECT = 60  # characters
RULE = "tests/commits.py"
# First words that are not imperative (Added, Adding, Adds), and an area before a colon.
OTHER_FORMS = re.compile(r"[A-Z][a-z]+(?:ed|ing|[^su]s)\b")
IMPERATIVES = {"Bring", "Embed", "Exceed", "Feed", "Need", "Proceed", "Ring", "Seed", "Speed"}
AREA = re.compile(r"[^\s:]+(?: [^\s:]+)?:(?: |$)")
TRAILER = re.compile(r"[A-Z][\w-]+-by: |Change-Id: ")


def check_message(subject: str, body: str) -> Iterator[str]:
    """Yield what is wrong with the message of a commit."""
    if subject.startswith('Revert "'):
        return
    first = subject.split(" ", 1)[0]
    if len(subject) > SUBJECT:
        yield f"subject: {len(subject)} characters, {SUBJECT} at most"
    if subject.endswith("."):
        yield "subject: ends with a full stop"
    if AREA.match(subject):
        yield "subject: begins with an area; begin with a verb"
    elif not first[:1].isupper() or (OTHER_FORMS.fullmatch(first) and first not in IMPERATIVES):
        yield f"subject: '{first}': begin with a capital and a verb in the imperative, as Add"
    if not any(line.strip() and not TRAILER.match(line) for line in body.splitlines()):
        yield "body: say why"


def git(root: Path, *words: str, given: str = "") -> str:
    """Return the output of a git command; empty if it fails."""
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def check_commits(root: Path) -> Iterator[str]:
    """Yield what is wrong with the last commits of a checkout."""
    if not (root / ".git").exists():
        return
    log = git(root, "log", "--no-merges", f"-{COMMITS}", "--format=%H%x00%s%x00%b%x01")
    commits = [entry.strip("\n").split("\0") for entry in log.split("\1") if entry.strip("\n")]
    asked = "".join(f"{commit}:{RULE}\n" for commit, _, _ in commits)
    has_rule = git(root, "cat-file", "--batch-check", given=asked).splitlines()
    if len(has_rule) != len(commits):
        return
    for (commit, subject, body), answer in zip(commits, has_rule, strict=True):
        if not answer.endswith("missing"):
            for finding in check_message(subject, body):
                yield f"commit {commit[:10]}: {finding}: {subject[:70]}"
