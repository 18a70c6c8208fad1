"""Goal: a trace has what streams of stdio read and write, as strace sees it."""

from __future__ import annotations

import functools
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from preloading import LIBRARY, Trace, compiled
from strace import Strace

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="built without the preload library")

ALL_WAYS = r"""
#include <locale.h>
#include <wchar.h>
int main(int count, char** words) {
    char b[300], *line = NULL, *much = malloc(200000);
    size_t room = 0;
    wchar_t wide[200];
    FILE *in = fopen(words[1], "r"), *out = fopen(words[2], "w");
    while (fgets(b, 300, in)) fprintf(out, "%s!", b);
    rewind(in);
    for (int i = 0; i < 9000; i++) putc_unlocked(getc_unlocked(in), out);
    while (getline(&line, &room, in) > 40) fputs(line, out);
    fseek(in, 100001, SEEK_SET);
    size_t n = fread(much, 1, 200000, in);
    fwrite(much, 1, n, out);
    fclose(in);
    FILE* both = fopen(words[1], "r+");
    fseek(both, 5000, SEEK_SET);
    fwrite("xyz", 1, 3, both);
    fseek(both, 0, SEEK_CUR);
    fgets(b, 100, both);
    fclose(both);
    setlocale(LC_ALL, "C.UTF-8");
    FILE* letters = fopen(words[1], "r");
    for (int k = 0; k < 3000 && fgetws(wide, 200, letters); k++) fwprintf(stderr, L"");
    fclose(letters);
    FILE* bare = fopen(words[1], "r");
    setvbuf(bare, NULL, _IONBF, 0);
    fread(b, 1, 100, bare);
    getc(bare);
    fclose(bare);
    FILE* large = fopen(words[1], "r");
    setvbuf(large, NULL, _IOFBF, 65536);
    fread(b, 1, 100, large);
    fclose(large);
    FILE* log = fopen(words[2], "a");
    fputs("appended\n", log);
    printf("%d\n", fflush(NULL));
    fputs("more\n", out);
    return 0;  // what is in the buffers of `log` and `out` is written now
}
"""
PYTHON = """
data = open("bin", "rb").read()
with open("out", "wb") as out:
    out.write(data[::-1])
with open("text") as lines, open("out", "a") as out:
    out.writelines(line for line in lines if "7" in line)
"""
SQL = """
import sqlite3
made = sqlite3.connect("db")
made.execute("create table t (a, b)")
made.executemany("insert into t values (?, ?)", [(i, "x" * 100) for i in range(5000)])
made.commit()
print(made.execute("select count(*) from t where a % 7 = 0").fetchone())
"""
PROGRAMS: dict[str, list[str]] = {
    "sort": ["sort", "text", "-o", "out"],
    "wc": ["wc", "text", "bin"],
    "tar": ["tar", "cf", "out", "text", "bin"],
    "gzip": ["gzip", "-k", "text"],
    "cut": ["sh", "-c", "exec cut -d' ' -f1 text > out"],
    "md5sum": ["md5sum", "text", "bin"],
    "cp": ["cp", "--sparse=always", "bin", "out"],
    "grep": ["sh", "-c", "exec grep 77 text > out"],
    "awk": ["sh", "-c", "exec awk '{s += $1} END {print s}' text > out"],
    "uniq": ["sh", "-c", "sort text | uniq -c > out"],
    "split": ["split", "-b", "100000", "bin", "part"],
    "perl": ["perl", "-ne", "print if /7/", "text"],
    "sqlite3": ["sqlite3", "db", "create table t (a); insert into t values (1); select * from t"],
    "SQLite of Python": [sys.executable, "-c", SQL],
    "Python": [sys.executable, "-c", PYTHON],
    "C": ["C", "text", "out"],
}


@functools.cache
def works() -> bool:
    """Return whether strace is here, and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], check=False).returncode == 0


def fill(folder: Path) -> None:
    chance = random.Random(1)
    lines = (b"%d word %d\n" % (chance.randrange(1 << 30), i) for i in range(30_000))
    folder.mkdir()
    (folder / "text").write_bytes(b"".join(lines))
    (folder / "bin").write_bytes(chance.randbytes(300_001))
    for path in folder.iterdir():  # which archives keep
        os.utime(path, (1e9, 1e9))


def traced(folder: Path, words: list[str]) -> tuple[subprocess.CompletedProcess[bytes], Trace]:
    command = [sys.executable, "-m", "penstock", "trace", "-o", str(folder) + ".trace", *words]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120, cwd=folder)
    return done, Trace(Path(f"{folder}.trace"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_accesses_as_strace(tmp_path: Path, name: str) -> None:
    words = PROGRAMS[name]
    if not works():
        pytest.skip("strace is missing, or may not trace")
    if name == "C":
        words = [compiled(tmp_path, "all_ways", ALL_WAYS), *words[1:]]
    if shutil.which(words[0]) is None:
        pytest.skip(f"needs {words[0]}")
    folder = tmp_path / "data"
    fill(folder)
    seen = Strace(folder, words, tmp_path / "log")
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    shutil.rmtree(folder)
    fill(folder)  # the same names: nothing of a file is the trace's
    done, trace = traced(folder, words)
    assert done.returncode == seen.done.returncode == 0, done.stderr
    assert done.stdout == seen.done.stdout
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == after
    ours = {path: all_ for path, all_ in trace.files.items() if path.startswith(str(folder))}
    assert seen.files, "strace saw nothing"
    assert ours == seen.files


def test_each_refill_and_flush_is_one_access(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    fill(folder)
    text = r"""
int main(int count, char** words) {
    char b[5000];
    FILE *in = fopen(words[1], "r"), *out = fopen(words[2], "w");
    getc(in);
    fread(b, 1, 10, in);
    lseek(fileno(in), 20000, SEEK_SET);
    fflush(in);
    fseek(in, 40000, SEEK_SET);
    fread(b, 1, 5000, in);
    fputs("abc", out);
    fflush(out);
    fputs("defgh", out);
    if (count > 3) _exit(0);
    return 0;
}
"""
    program = compiled(tmp_path, "refills", text)
    for words, written in (([], [("w", 0, 3), ("w", 3, 5)]), (["_exit"], [("w", 0, 3)])):
        done, trace = traced(folder, [program, "bin", "out", *words])
        assert done.returncode == 0
        assert trace.of(folder / "bin")[0] == ("r", 0, 4096)
        assert ("r", 36864, 4096) in trace.of(folder / "bin")
        assert trace.of(folder / "out") == written


def test_streams_of_the_standard_descriptors_and_of_children(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    fill(folder)
    text = r"""
int main(void) {
    int letter;
    for (int i = 0; i < 6000 && (letter = getchar()) != EOF; i++) putchar(letter);
    fflush(NULL);
    if (fork() == 0) return printf("child\n") != 6;
    wait(NULL);
    puts("parent");
    perror("told");
    return 0;
}
"""
    program = compiled(tmp_path, "standard", text)
    done, trace = traced(folder, ["sh", "-c", f"{program} < bin > out 2> told"])
    assert done.returncode == 0, done.stderr
    assert trace.of(folder / "bin") == [("r", 0, 4096), ("r", 4096, 4096)]
    assert trace.of(folder / "out") == [
        ("w", 0, 4096),
        ("w", 4096, 1904),
        ("w", 6000, 6),
        ("w", 6006, 7),
    ]
    assert sum(size for _, _, size in trace.of(folder / "told")) > 0
    assert (folder / "out").read_bytes().endswith(b"child\nparent\n")


def test_libcs_memory_is_protected_as_before(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    fill(folder)
    words = ["sh", "-c", "exec grep 'libc.so.6' /proc/self/maps > out"]
    subprocess.run(words, check=True, cwd=folder)
    alone = [line.split()[1:3] for line in (folder / "out").read_text().splitlines()]
    assert traced(folder, words)[0].returncode == 0
    assert [line.split()[1:3] for line in (folder / "out").read_text().splitlines()] == alone
