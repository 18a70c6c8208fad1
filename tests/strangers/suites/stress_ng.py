"""stress-ng: its stressors of file systems and files, with their own checks (`--verify`)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ..suite import FAILED, PASSED, SKIPPED, Case, Finished, Outcomes, Suite, words

STRESSORS = words("""
    access acl aio aiol chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dup eventfd
    fallocate fault fcntl fd-fork fiemap file-ioctl filename flock fpunch fstat getdents handle hdd
    inode-flags io iomix io-uring lease link locka lockf lockofd metamix mknod mmap mmapfixed
    mmapfork mmapmany msync msyncmany open pipe poll readahead rename revio rmap seek sendfile
    sigfd splice symlink sync-file tee tmpfs touch utime verity vm-splice xattr
""")
SECONDS = 3
OPTIONS = {
    "hdd-direct": ["--hdd", "2", "--hdd-opts", "direct,wr-rnd,rd-rnd"],
    "hdd-sync": ["--hdd", "2", "--hdd-opts", "sync,wr-rnd,rd-rnd"],
    "hdd-vectors": ["--hdd", "2", "--hdd-opts", "iovec,wr-seq,rd-seq"],
    "mmap-file": ["--mmap", "2", "--mmap-file", "--mmap-bytes", "16m"],
    "mmap-odirect": ["--mmap", "2", "--mmap-odirect", "--mmap-bytes", "16m"],
    "readahead-large": ["--readahead", "1", "--readahead-bytes", "64m"],
}
NO_RESOURCES, NOT_IMPLEMENTED = 3, 4  # exit codes of stress-ng


def _read(done: Finished) -> Outcomes:
    if done.code in (NOT_IMPLEMENTED, NO_RESOURCES) or "will be skipped" in done.output:
        return {"": SKIPPED}
    return {"": PASSED if done.code == 0 else FAILED}


def _case(name: str, options: Sequence[str]) -> Case:
    always = ["--verify", "--temp-path", "{folder}", "--timeout", str(SECONDS), "--oomable"]
    return Case(name, ["stress-ng", *options, *always], seconds_max=60, read=_read)


def _cases(_copies: Path) -> Sequence[Case]:
    cases = [_case(name, [f"--{name}", "2"]) for name in STRESSORS]
    return cases + [_case(name, options) for name, options in OPTIONS.items()]


def _missing(_copies: Path) -> str:
    return "" if shutil.which("stress-ng") else "stress-ng is not installed"


SUITE = Suite("stress-ng", _cases, ways=("run", "write-back", "mount"), missing=_missing)
