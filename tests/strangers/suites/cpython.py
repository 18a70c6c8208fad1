"""CPython: those modules of its test suite that use files, sockets and other programs.

Debian's python3.11 with libpython3.11-testsuite; no copy is needed.
"""

from __future__ import annotations

import xml.etree.ElementTree as Xml
from collections.abc import Sequence
from pathlib import Path

from ..suite import FAILED, PASSED, SKIPPED, Case, Finished, Outcomes, Suite, words

PROGRAM = "/usr/bin/python3.11"
MODULES = words("""
    test_io test_file test_fileio test_bufio test_mmap test_os test_posix test_shutil test_tarfile
    test_zipfile test_zipimport test_importlib test_import test_runpy test_pathlib test_glob
    test_tempfile test_gzip test_bz2 test_lzma test_dbm test_dbm_gnu test_dbm_dumb test_shelve
    test_mailbox test_fcntl test_select test_selectors test_pty test_fileinput test_linecache
    test_filecmp test_compileall test_py_compile test_posixpath test_genericpath test_stat
    test_sqlite3 test_logging test_thread test_fork1 test_wait4 test_eintr test_poll test_epoll
    test_pipes test_popen test_cmd_line test_cmd_line_script test_faulthandler test_netrc
    test_configparser test_csv test_array test_marshal test_plistlib test_wave test_aifc test_sax
    test_minidom test_httpservers test_socketserver test_readline test_resource test_sendfile
    test_univnewlines test_zipapp test_mimetypes test_socket test_subprocess test_threading
    test_signal test_largefile test_lib2to3 test_asyncore test_smtpd test_codecs test_pickle
""")
SLOW = {"test_subprocess": 300, "test_socket": 240, "test_io": 300, "test_importlib": 240}


def _read(done: Finished) -> Outcomes:
    """Read the results that regrtest writes as those of JUnit."""
    try:
        tree = Xml.parse(done.folder / "results.xml")
    except (OSError, Xml.ParseError):
        return {"end": SKIPPED if "skipped" in done.output and done.code == 0 else FAILED}
    outcomes: Outcomes = {}
    for test in tree.iter("testcase"):
        bad = test.find("failure") is not None or test.find("error") is not None
        skipped = test.find("skipped") is not None or test.get("status") == "notrun"
        name = test.get("name", "")
        outcome = FAILED if bad else SKIPPED if skipped else PASSED
        if outcomes.get(name) != FAILED:  # subtests have the name of their test
            outcomes[name] = outcome
    if done.code not in (0, 2):  # 2: tests failed, which are named
        outcomes["end"] = FAILED
    return outcomes


def _missing(_copies: Path) -> str:
    tests = Path("/usr/lib/python3.11/test/test_io.py")
    return "" if tests.exists() else "libpython3.11-testsuite is not installed"


def _cases(_copies: Path) -> Sequence[Case]:
    options = ["--junit-xml", "{folder}/results.xml", "--tempdir", "{folder}"]
    return [
        Case(
            module,
            [PROGRAM, "-m", "test", *options, module],
            seconds_max=SLOW.get(module, 120),
            read=_read,
            environment={"TMPDIR": "{folder}"},
        )
        for module in MODULES
        if Path("/usr/lib/python3.11/test", module).with_suffix(".py").exists()
        or Path("/usr/lib/python3.11/test", module).is_dir()
    ]


SUITE = Suite("cpython", _cases, missing=_missing)
