"""Plants one violation of each kind that tidy.py knows in a small tree; checks each is found."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import commits
import tidy

TABLE = """# Architecture

## Layers

| room | kind | doors | may include |
| --- | --- | --- | --- |
| abi | | * | nothing |
| base | | * | abi |
| extent | pure | | base |
| storage | port | storage.h, system_calls.h | extent, base, backend/memory.h |
| backend | port | backend.h, memory.h | base |
| transfer | | executor.cc | storage, base |
| service | | | storage, base |
| frontends/one | | * | abi |
| frontends/two | | * | abi |
"""

CLEAN = {
    "ARCHITECTURE.md": TABLE,
    "CMakeLists.txt": "# Build.\npenstock_room(base)\npenstock_room(extent DEPENDS base)\n"
    "penstock_frontend(one TARGET o)\npenstock_frontend(two TARGET t)\n",
    "frontends/one/one.h": "// One.\n",
    "frontends/one/one.cc": '// One.\n#include "one.h"\n#include "penstock/abi/limits.h"\n',
    "include/penstock/abi/limits.h": "// Limits.\n",
    "src/base/clock.h": '// Clock.\n#include "penstock/abi/limits.h"\n',
    "src/extent/extent.h": '// Ranges.\n#include "base/clock.h"\n',
    "src/backend/backend.h": "// Port.\n",
    "src/backend/memory.h": "// Memory.\n",
    "src/storage/storage.h": '// Port.\n#include "extent/extent.h"\n#include "backend/memory.h"\n',
    "src/storage/system_calls.h": "// Calls.\n",
    "src/storage/system_calls.cc": "// Calls.\nlong n = ::pread(1, nullptr, 0, 0);\n"
    "void* p = mmap(0, 1, 1, 1, file, 0);\n",
    "src/storage/posix.cc": "// Posix.\nlong n = system::pread(1, nullptr, 0, 0);\n"
    "auto r = io_uring_setup(1, p);\n",
    "src/service/service.h": "// Serves.\nvoid serve() { executor_.submit(1); }\n",
    "src/transfer/executor.cc": "// Executes.\nsize_t taken = queue_->submit(batch_);\n",
    "docs/links.md": "[a](../ARCHITECTURE.md#layers) [b](https://x.y/z) [c](#here) `[d](e)`\n"
    "```\n[f](g)\n```\n",
    # Comments, strings, members and declarations, none of which is a violation.
    "src/service/service.cc": "// See pread(2).\n"
    'const char* kText = "= pread(";\n'
    "long a = file.pread(1);\n"
    "Status pread(int);\n"
    "void* p = mmap(nullptr, size, 3,\n               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);\n"
    "void Service::close(int a) { a_ = a; }\nvoid Service::stop() { close(1); }\n"
    "const auto open = [](int flags) { return flags; };\nint o = open(1);\n"
    "auto f = storage::system::open(path, 0);\nauto g = File::open(path);\n"
    "rename(); file->unlink(name);\n",
    "src/backend/cpu/crash_report.cc": "// C.\nint n = ::write(2, text, 4);\n",
}

# The name of a call on a file, and a line outside storage that makes it.
FILE_CALLS = (
    ("pread", "long n = pread(1, p, 0, 0);"),
    ("pread64", "(void)pread64(1, p, 0, 0);"),
    ("preadv2", "while (preadv2(f, p, 1, 0, 0) < 0) {}"),
    ("pwrite", "do n = ::pwrite(f, p, 1, 0); while (n < 0);"),
    ("pwritev2", "return pwritev2(f, p, 1, 0, 0);"),
    ("read", "n = ::read(f, p, 1);"),
    ("write", "write(f, p, 1);"),
    ("open", "const int f = open(path, O_RDONLY);"),
    ("openat", "Descriptor f(openat(folder, path, 0));"),
    ("close", "if (f >= 0) close(f);"),
    ("stat", "int e = ::stat(path, &told);"),
    ("fstat", "if (fstat(f, &told) != 0) return;"),
    ("statx", "auto e = ok && statx(f, path, 0, 0, &told);"),
    ("fstatfs", "if (!fstatfs(f, &told)) {}"),
    ("statvfs", "auto e = statvfs(path, &told);"),
    ("ftruncate", "else ftruncate(f, 0);"),
    ("fallocate", "fallocate(f, 0, 0, 1);"),
    ("posix_fadvise", "(void)posix_fadvise(f, 0, 0, 4);"),
    ("fsync", "auto e = a ? fsync(f) : 0;"),
    ("fdatasync", "auto e = a ? 0 : fdatasync(f);"),
    ("sync_file_range", "sync_file_range(f, 0, 0, 0);"),
    ("unlink", "unlink(path);"),
    ("rename", "e = rename(a, b);"),
    ("std::rename(", "e = std::rename(a, b);"),
    ("mkdir", "mkdir(path, 0700);"),
    ("mkostemp", "f = mkostemp(path, 0);"),
    ("readlink", "n = readlink(path, p, 1);"),
    ("flock", "flock(f, LOCK_EX);"),
    ("fcntl", "fcntl(f, F_SETFL, 0);"),
    ("ioctl", "ioctl(f, FS_IOC_GETVERSION, &n);"),
    ("fopen", "FILE* f = fopen(path, a);"),
    ("syscall", "syscall(SYS_cachestat, f, &a, &b, 0);"),
    ("mmap", "void* p = mmap(nullptr, n, PROT_READ, MAP_SHARED, f, 0);"),
    ("std::ifstream", "std::ifstream in(path);"),
    ("std::filesystem", "std::filesystem::remove_all(path);"),
)

# A planted file (path, text), and a part of the finding that it must give.
PLANTED = (
    ("frontends/two/two.cc", '// T.\n#include "frontends/one/one.h"\n', "frontends/two may not"),
    ("frontends/three/x.h", "// T.\n", "room 'frontends/three' is not in the layer table"),
    ("CMakeLists.txt", "# B.\npenstock_frontend(one)\n", "front 'two'"),
    ("ARCHITECTURE.md", TABLE + "| tool | | * | frontends/one |\n", "no room includes a front"),
    ("src/service/env.cc", '// E.\nauto p = std::getenv("HOME");\n', "port: getenv"),
    ("src/base/up.h", '// Up.\n#include "extent/extent.h"\n', "layer: base may not include"),
    ("src/storage/gpu.cc", '// G.\n#include "backend/backend.h"\n', "layer: storage may not"),
    ("src/service/in.cc", '// I.\n#include "storage/posix.h"\n', 'no file "storage/posix.h"'),
    ("src/extent/clocked.h", "// C.\n#include <chrono>\n", "pure room 'extent'"),
    *(
        (f"src/service/{i}.cc", f"// F.\n{line}\n", f".cc:2: port: {name}")
        for i, (name, line) in enumerate(FILE_CALLS)
    ),
    ("src/storage/uring.cc", "// U.\nlong n = preadv2(f, p, 1, 0, 0);\n", "port: preadv2"),
    ("src/backend/cpu/crash_report.cc", "// C.\nint n = ::open(p, 0);\n", "port: open"),
    ("src/service/ring.cc", "// R.\nvoid f() {\n    io_uring_submit(r);\n}\n", "port: io_uring_"),
    ("src/backend/cpu/a.cc", "// A.\nauto e = cuInit(0);\n", "port: cuInit"),
    ("src/service/b.cc", "// B.\nvoid f() {\n    cudaFree(p);\n}\n", "port: cudaFree"),
    ("src/service/more.cc", "// M.\nvoid f() { queue_->submit(two); }\n", "only src/transfer"),
    ("src/transfer/job.cc", "// J.\nauto n = storage_queue().submit(2);\n", "only src/transfer"),
    ("src/file/one.cc", "// O.\nauto c = queue_->submit_and_reap(one);\n", "only src/transfer"),
    ("src/transfer/executor.cc", "// E.\nvoid f() { port_->submit(2); }\n", "no executor submits"),
    ("src/base/thrower.cc", "// T.\nvoid f() { throw 1; }\n", "throw:"),
    ("src/base/names.h", "// N.\nclass CacheManager {};\n", "name: class"),
    ("src/attic/x.h", "// X.\n", "room 'attic' is not in the layer table"),
    ("src/base/util/x.h", "// X.\n", "folder: 'util'"),
    ("src/base/wide.h", "// " + "w" * 100 + "\n", "width: 103 columns"),
    ("src/base/long.cc", "// L.\n" + "int x;\n" * 1000, "length: 1001 lines"),
    ("src/base/bare.h", "int x;\n", "opening:"),
    ("src/base/later.h", "// TO" + "DO: more\n", "unfinished"),
    ("docs/where.md", "see /wo" + "rk/main\n", "machine path"),
    ("docs/dead.md", "[a](links.md)\n[b](nowhere.md)\n", "docs/dead.md:2: link: no file"),
    ("docs/away.md", "![a](../../../etc/hosts)\n", "link: no file ../../../etc/hosts"),
    ("CMakeLists.txt", "# B.\npenstock_room(extent DEPENDS base abi2)\n", "layer: extent depends"),
    ("ARCHITECTURE.md", "# Architecture\n", "no layer table"),
)

# Planted together: a header inside a room, and a file outside that includes it.
PLANTED_DOOR = {
    "src/storage/inside.h": "// Inside.\n",
    "src/service/reach.cc": '// Reach.\n#include "storage/inside.h"\n',
}
PLANTED_NO_DOOR = {"src/extent/extent.h": "", "src/extent/other.h": "// Other.\n"}


# Messages of commits: subject, body, and a part of the finding; empty if there is none.
MESSAGES = (
    ("Add a check of links", "Dead links were found by readers.\n", ""),
    ("Pass the stream on", "Callers lost it.\n", ""),
    ("Bring back the wait", "Copies overtook it.\n", ""),
    ('Revert "Read files past the page cache where that is cheaper than through it"', "", ""),
    ("Add " + "x" * 57, "Why.\n", "61 characters"),
    ("Added a check", "Why.\n", "'Added'"),
    ("Adding a check", "Why.\n", "'Adding'"),
    ("Adds a check", "Why.\n", "'Adds'"),
    ("add a check", "Why.\n", "'add'"),
    ("Add a check.", "Why.\n", "full stop"),
    ("Tests: add a check", "Why.\n", "an area"),
    ("Fake driver: addresses go", "Why.\n", "an area"),
    ("Add a check", "", "body"),
    ("Add a check", "Signed-off-by: A <a@b>\n", "body"),
)


def check_messages() -> list[str]:
    """Return the messages whose findings are not those expected."""
    failures = []
    for subject, body, expected in MESSAGES:
        found = list(commits.check_message(subject, body))
        if bool(found) != bool(expected) or (expected and expected not in found[0]):
            failures.append(f"message '{subject}': wanted '{expected}', found {found}")
    return failures


def check_history() -> list[str]:
    """Check that commits from before the rule are skipped, and later ones are found."""
    if shutil.which("git") is None:
        return []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")

        def commit(subject: str) -> None:
            for words in (("add", "-A"), ("commit", "-q", "--allow-empty", "-m", subject)):
                subprocess.run(["git", "-C", folder, *identity, *words], check=True)

        if list(commits.check_commits(root)):
            return ["history: something is found without .git"]
        subprocess.run(["git", "init", "-q", folder], check=True)
        if list(commits.check_commits(root)):
            return ["history: something is found without a commit"]
        commit("old: this had no rule")
        (root / "tests").mkdir()
        (root / commits.RULE).write_text('"""A rule."""\n')
        commit("Add the rule\n\nSubjects were long.")
        clean = list(commits.check_commits(root))
        commit("new: this has one")
        found = list(commits.check_commits(root))
        shallow = root / "shallow"
        command = ["git", "clone", "-q", "--depth", "1", f"file://{folder}", str(shallow)]
        subprocess.run(command, check=True)
        found_in_shallow = list(commits.check_commits(shallow))
    if clean or len(found) != 2 or found != found_in_shallow:
        return [f"history: found {clean}, then {found}, in a shallow clone {found_in_shallow}"]
    return []


def findings_of(files: dict[str, str]) -> list[str]:
    """Return all findings in a tree of these files; an empty text leaves the file out."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            if text:
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        return list(tidy.Tree(Path(folder)).check())


def run() -> int:
    """Run the self-test; the exit code is 0 if every violation, and nothing else, was found."""
    failures = [f"clean tree: {finding}" for finding in findings_of(CLEAN)]
    for path, text, expected in PLANTED:
        found = findings_of(CLEAN | {path: text})
        if not any(expected in finding for finding in found):
            failures.append(f"{path}: wanted '{expected}', found {found}")
    for files, expected in ((PLANTED_DOOR, "door:"), (PLANTED_NO_DOOR, "the room has no")):
        found = findings_of(CLEAN | files)
        if not any(expected in finding for finding in found):
            failures.append(f"{sorted(files)}: wanted '{expected}', found {found}")
    failures += check_messages() + check_history()
    for failure in failures:
        print(f"tidy self-test: {failure}")
    kinds = len(PLANTED) + 2 + sum(bool(expected) for _, _, expected in MESSAGES)
    print(f"tidy self-test: {kinds} kinds of violation planted, {len(failures)} failures")
    return 1 if failures else 0
