"""Goal: programs behave under `penstock trace` as alone, and each access of theirs is recorded."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import _core

ROOT = Path(__file__).parents[3]
LIBRARY = Path(_core.__file__).parent / "libpenstock-preload.so"

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library")


def traced(
    tmp_path: Path, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "trace", "-o", str(tmp_path / "t"), "--", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env=env
    )


def accesses(tmp_path: Path, file: Path) -> list[tuple[str, int, int]]:
    """Return what the trace has of a file: operation, offset, size."""
    lines = (tmp_path / "t").read_text().splitlines()
    assert lines[0] == "penstock-trace 1"
    fields = [line.split(" ") for line in lines[1:]]
    return [(one[2], int(one[4]), int(one[5])) for one in fields if one[3] == str(file)]


def program(tmp_path: Path, text: str, *options: str) -> str:
    """Compile a C program."""
    (tmp_path / "p.c").write_text("#define _GNU_SOURCE\n" + text)
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    command = [
        compiler,
        "-O2",
        *options,
        "-o",
        str(tmp_path / "p"),
        str(tmp_path / "p.c"),
        "-pthread",
    ]
    subprocess.run(command, check=True)
    return str(tmp_path / "p")


def names_in(path: Path) -> str:
    """Return the dynamic symbols of a program or library."""
    return subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(100_000))
    return path


def test_dd_in_blocks(tmp_path: Path, data: Path) -> None:
    done = traced(tmp_path, "dd", f"if={data}", f"of={tmp_path / 'copy'}", "bs=30000")
    assert done.returncode == 0
    assert (tmp_path / "copy").read_bytes() == data.read_bytes()
    pieces = [(0, 30000), (30000, 30000), (60000, 30000), (90000, 10000)]
    assert accesses(tmp_path, data) == [("r", *piece) for piece in pieces]
    assert accesses(tmp_path, tmp_path / "copy") == [("w", *piece) for piece in pieces]
    # libc may read a file of its own by a stream, for the names of locales.
    assert re.search(r": (8 accesses to 2|9 accesses to 3) files", done.stderr)


def test_every_call_with_an_offset_of_its_own(tmp_path: Path, data: Path) -> None:
    path = program(
        tmp_path,
        """
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>
int main(int count, char** words) {
    char b[300];
    struct iovec v[2] = {{b, 10}, {b + 10, 20}};
    int fd = open(words[1], O_RDWR);
    pread(fd, b, 1, 100);
    pread64(fd, b, 2, 200);
    preadv(fd, v, 2, 300);
    preadv64(fd, v, 2, 400);
    preadv2(fd, v, 2, 500, 0);
    lseek(fd, 600, SEEK_SET);
    preadv2(fd, v, 2, -1, 0);
    read(fd, b, 3);
    readv(fd, v, 1);
    pwrite(fd, b, 1, 700);
    pwritev(fd, v, 2, 800);
    write(fd, b, 4);
    int other = dup(fd);
    read(other, b, 5);
    close(fd);
    read(other, b, 6);
    return 0;
}
""",
    )
    assert traced(tmp_path, path, str(data)).returncode == 0
    assert accesses(tmp_path, data) == [
        ("r", 100, 1),
        ("r", 200, 2),
        ("r", 300, 30),
        ("r", 400, 30),
        ("r", 500, 30),
        ("r", 600, 30),
        ("r", 630, 3),
        ("r", 633, 10),
        ("w", 700, 1),
        ("w", 800, 30),
        ("w", 643, 4),
        ("r", 647, 5),
        ("r", 652, 6),
    ]


def test_a_descriptor_number_that_is_used_again(tmp_path: Path, data: Path) -> None:
    (tmp_path / "other").write_bytes(b"x" * 50)
    code = f"""
import os
for i in range(3):
    for path, size in (({str(data)!r}, 10), ({str(tmp_path / "other")!r}, 20)):
        fd = os.open(path, os.O_RDONLY)
        os.read(fd, size)
        os.close(fd)
a = os.open({str(data)!r}, os.O_RDONLY)
b = os.open({str(tmp_path / "other")!r}, os.O_RDONLY)
os.read(a, 1)
os.dup2(b, a)
os.read(a, 2)
"""
    assert traced(tmp_path, sys.executable, "-c", code).returncode == 0
    assert accesses(tmp_path, data) == [("r", 0, 10)] * 3 + [("r", 0, 1)]
    assert accesses(tmp_path, tmp_path / "other") == [("r", 0, 20)] * 3 + [("r", 0, 2)]


@pytest.mark.parametrize("words", [["head", "-c", "7"], ["env", "-i", "head", "-c", "7"]])
def test_children_with_and_without_an_environment(
    tmp_path: Path, data: Path, words: list[str]
) -> None:
    code = f"import subprocess; subprocess.run({[*words, str(data)]!r}, env={{}}, stdout=-3)"
    assert traced(tmp_path, sys.executable, "-c", code).returncode == 0
    assert accesses(tmp_path, data)[0][:2] == ("r", 0)


def test_a_worker_that_leaves_by_exit_and_one_that_is_killed(tmp_path: Path, data: Path) -> None:
    code = f"""
import os, signal
for how in (lambda: os._exit(0), lambda: os.kill(os.getpid(), signal.SIGKILL)):
    child = os.fork()
    if child == 0:
        fd = os.open({str(data)!r}, os.O_RDONLY)
        os.pread(fd, 11, 22)
        how()
    os.waitpid(child, 0)
"""
    assert traced(tmp_path, sys.executable, "-c", code).returncode == 0
    assert accesses(tmp_path, data) == [("r", 22, 11)] * 2


def test_a_failed_exec_and_its_errno(tmp_path: Path) -> None:
    path = program(
        tmp_path,
        """
#include <errno.h>
#include <unistd.h>
int main(void) {
    char* none[] = {0};
    execl("/nowhere", "nowhere", "x", (char*)0);
    if (errno != ENOENT) return 1;
    errno = 0;
    execve("/", none, none);
    if (errno != EACCES) return 2;
    char b;
    errno = 0;
    if (read(-1, &b, 1) != -1 || errno != EBADF) return 3;
    errno = 5;
    if (getpid() < 0 || write(1, "ok", 2) != 2 || errno != 5) return 4;
    execlp("sh", "sh", "-c", "exit 42", (char*)0);
    return 5;
}
""",
    )
    done = traced(tmp_path, path)
    assert (done.returncode, done.stdout) == (42, "ok")


def test_fortified_calls(tmp_path: Path, data: Path) -> None:
    text = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char** words) {
    char b[64];
    int size = atoi(words[2]), flags = size > 1000 ? O_RDWR : O_RDONLY;
    int fd = open(words[1], flags);
    return read(fd, b, size) == 33 && pread(fd, b, size, 5) == 33 ? 0 : 1;
}
"""
    path = program(tmp_path, text, "-D_FORTIFY_SOURCE=2")
    assert (
        "_chk"
        in subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
    )
    assert traced(tmp_path, path, str(data), "33").returncode == 0
    assert accesses(tmp_path, data) == [("r", 0, 33), ("r", 5, 33)]


def test_threads_lose_no_line(tmp_path: Path, data: Path) -> None:
    code = f"""
import os, threading
def read(number):
    fd = os.open({str(data)!r}, os.O_RDONLY)
    for i in range(5000):
        os.pread(fd, 1 + number, i)
threads = [threading.Thread(target=read, args=(n,)) for n in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    assert traced(tmp_path, sys.executable, "-c", code).returncode == 0
    found = accesses(tmp_path, data)
    assert sorted(found) == sorted(("r", i, 1 + n) for n in range(4) for i in range(5000))


def test_calls_between_descriptors(tmp_path: Path, data: Path) -> None:
    out = tmp_path / "out"
    code = f"""
import os
a = os.open({str(data)!r}, os.O_RDONLY)
b = os.open({str(out)!r}, os.O_WRONLY | os.O_CREAT)
assert os.copy_file_range(a, b, 1000) == 1000
assert os.sendfile(b, a, 2000, 500) == 500
"""
    assert traced(tmp_path, sys.executable, "-c", code).returncode == 0
    assert accesses(tmp_path, data) == [("r", 0, 1000), ("r", 2000, 500)]
    assert accesses(tmp_path, out) == [("w", 0, 1000), ("w", 1000, 500)]


def test_names_with_spaces_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/a b%\xff\n"
    Path(os.fsdecode(name)).write_bytes(b"12345")
    assert traced(tmp_path, "cat", os.fsdecode(name)).returncode == 0
    assert b"/a%20b%25\xff%0A 0 5\n" in (tmp_path / "t").read_bytes()


def test_another_preloaded_library_stays(tmp_path: Path, data: Path) -> None:
    (tmp_path / "other.c").write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <unistd.h>\n"
        "ssize_t read(int fd, void* to, size_t size) {\n"
        '    ssize_t (*next)(int, void*, size_t) = dlsym(RTLD_NEXT, "read");\n'
        "    return next(fd, to, size > 1000 ? 1000 : size);\n}\n"
        "__attribute__((constructor)) static void early(void) { char b; read(-1, &b, 1); }\n"
    )
    library = str(tmp_path / "other.so")
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "other.c"], check=True)
    environment = {**os.environ, "LD_PRELOAD": library}
    done = traced(tmp_path, "dd", f"if={data}", "of=/dev/null", "count=2", env=environment)
    assert done.returncode == 0
    assert accesses(tmp_path, data) == [("r", 0, 512), ("r", 512, 512)]
    words = ("dd", f"if={data}", "of=/dev/null", "bs=3000", "count=1")
    assert traced(tmp_path, *words, env=environment).returncode == 0
    assert accesses(tmp_path, data) == [("r", 0, 1000)]


@pytest.mark.parametrize("killed", [signal.SIGKILL, signal.SIGSEGV])
def test_exit_codes(tmp_path: Path, killed: signal.Signals) -> None:
    assert traced(tmp_path, "sh", "-c", "exit 7").returncode == 7
    assert traced(tmp_path, "sh", "-c", f"kill -{int(killed)} $$").returncode == 128 + killed


def test_what_cannot_be_traced_is_refused_in_one_line(tmp_path: Path) -> None:
    def refused(*words: str, code: int = 126) -> str:
        done = traced(tmp_path, *words)
        assert done.returncode == code
        assert not (tmp_path / "t").exists()
        assert done.stderr.count("\n") == 1
        return done.stderr

    assert "No such file" in refused("nowhere-to-be-found", code=127)
    assert "Permission denied" in refused(str(ROOT / "README.md"))
    static = program(tmp_path, "int main(void) { return 0; }\n", "-static")
    assert "is linked statically" in refused(static)
    command = [sys.executable, "-m", "penstock", "trace", "-o", "/nowhere/t", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "penstock: /nowhere/t: No such file or directory\n",
    )


def test_no_room_for_a_trace_ends_it_and_not_the_program(tmp_path: Path, data: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(LIBRARY), "PENSTOCK_TRACE": str(tmp_path / "t")}
    command = ["sh", "-c", f"ulimit -f 100; exec cat {data}"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, data.read_bytes())
    assert b"File too large" in done.stderr


def test_the_trace_is_read_by_signature(tmp_path: Path, data: Path) -> None:
    assert traced(tmp_path, "dd", f"if={data}", "of=/dev/null", "bs=1000").returncode == 0
    command = [sys.executable, "-m", "penstock", "signature", "--json", str(tmp_path / "t")]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert found["streams"][0]["class"] == "contiguous"


def test_the_environment_alone_records_too(tmp_path: Path, data: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(LIBRARY), "PENSTOCK_TRACE": str(tmp_path / "t")}
    for _ in range(2):
        subprocess.run(["dd", f"if={data}", "of=/dev/null"], env=environment, check=True)
    command = [sys.executable, "-m", "penstock", "signature", "--json", str(tmp_path / "t")]
    found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert sum(stream["accesses"] for stream in found["streams"]) >= 2 * 196


def test_the_list_of_calls_is_what_the_library_exports() -> None:
    text = (ROOT / "frontends/preload/calls.def").read_text()
    listed = set(re.findall(r"^CALL\(\w+, [\w*]+, (\w+),", text, re.MULTILINE))
    for name in re.findall(r"^CALL_OFFSET\(\w+, [\w*]+, (\w+),", text, re.MULTILINE):
        listed |= {name, f"{name}64"}
    for prefix in re.findall(r"^CALL_SCAN\((\w*)\)", text, re.MULTILINE):
        listed |= {prefix + name for name in ("fwscanf", "vfwscanf", "wscanf", "vwscanf")}
    exported = set(re.findall(r" T (\w+)$", names_in(LIBRARY), re.MULTILINE))
    assert exported == listed | {"__asan_default_options"}  # a question of AddressSanitizer's
    exported = listed
    libc = subprocess.run(["ldd", LIBRARY], capture_output=True, text=True, check=True).stdout
    path = re.search(r"libc\.so\.6 => (\S+)", libc)
    assert path
    since_2_38 = {name for name in exported if name.startswith("__isoc23_")}
    assert exported - since_2_38 <= set(re.findall(r" [TWi] (\w+)@", names_in(Path(path[1]))))
    table = (ROOT / "docs/guide/programs.md").read_text()
    plain = {re.sub(r"^__(isoc\d\d_)?|64v|64|_chk$|_2$", "", name) for name in listed}
    assert plain == set(re.findall(r"`(\w+)`", table.partition("| --- |")[2].partition("\n\n")[0]))


def test_the_program_gets_what_the_shell_has_opened(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("seven\n")
    command = [sys.executable, "-m", "penstock", "trace", "-o", str(tmp_path / "t"), "cat"]
    with data.open() as file:
        done = subprocess.run(
            [*command, f"/dev/fd/{file.fileno()}"],
            pass_fds=[file.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout) == (0, "seven\n"), done.stderr


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_summary_without_a_place_changes_nothing(tmp_path: Path, redirection: str) -> None:
    command = f"{sys.executable} -m penstock trace -o {tmp_path}/t cat /etc/hostname {redirection}"
    done = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (0, Path("/etc/hostname").read_bytes())


def test_programs_that_cannot_start_have_the_codes_of_a_shell(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(b"\1\2\3")
    (tmp_path / "odd").chmod(0o755)
    for verb in (["trace", "-o", str(tmp_path / "t")], ["run"]):
        for name, code in (("/nowhere/at/all", 127), (str(tmp_path / "odd"), 126)):
            command = [sys.executable, "-m", "penstock", *verb, name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr.count(name)) == (code, 1), done.stderr
