"""Goal: what libc reads and writes by calls of its own is what the program has written before.

Each case runs alone and under `penstock run --cache --write-back`, and prints the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from caching import Cache, needs_cache
from preloading import compiled

pytestmark = needs_cache

# The program is in the folder of its files. Each case writes a file by write(2) or pwrite(2), which
# stays in the cache, and has libc read it, or write to it.
PRELUDE = r"""
#include <aio.h>
#include <fts.h>
#include <ftw.h>
#include <mntent.h>
#include <nl_types.h>
static int put(const char* name, const char* text, size_t size) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0700);
    CHECK(fd >= 0 && write(fd, text, size) == size);
    return fd;
}
static int copy(const char* from, const char* to) {
    static char bytes[1 << 20];
    int fd = open(from, O_RDONLY);
    long size = read(fd, bytes, sizeof bytes);
    CHECK(size > 0 && close(fd) == 0);
    return put(to, bytes, size);
}
static void show(const char* name) {
    char text[200] = {0};
    int fd = open(name, O_RDONLY);
    struct stat status;
    CHECK(fstat(fd, &status) == 0);
    printf("%s: %ld %s\n", name, (long)status.st_size, (read(fd, text, 199), text));
    close(fd);
}
"""

CASES = {
    "dlopen": r"""
    close(copy("plugin.so", "new.so"));
    void* library = dlopen("./new.so", RTLD_NOW);
    if (library == 0) puts(dlerror());
    CHECK(library != 0 && ((int (*)(void))dlsym(library, "number"))() == 7);
    close(copy("plugin.so", "other.so"));
    CHECK(dlmopen(LM_ID_NEWLM, "./other.so", RTLD_NOW) != 0);
""",
    "catopen": r"""
    close(copy("messages.cat", "new.cat"));
    nl_catd catalogue = catopen("./new.cat", 0);
    CHECK(catalogue != (nl_catd)-1);
    puts(catgets(catalogue, 1, 1, "none"));
""",
    "setmntent": r"""
    put("mtab", "/dev/x /y ext4 rw 0 0\n", 22);
    FILE* file = setmntent("mtab", "r");
    struct mntent* entry = getmntent(file);
    printf("%s\n", entry == 0 ? "none" : entry->mnt_dir);
    CHECK(getmntent(file) == 0 && endmntent(file) == 1);
    file = setmntent("mtab", "a");
    struct mntent more = {"/dev/z", "/z", "xfs", "ro", 1, 2};
    CHECK(addmntent(file, &more) == 0 && endmntent(file) == 1);
    show("mtab");
""",
    "walk": r"""
    int fd = put("walked", "text", 4);
    int of(const char* path, const struct stat* status, int kind, struct FTW* place) {
        if (strstr(path, "walked")) printf("%s %ld\n", path, (long)status->st_size);
        if (strcmp(path, "./walked") == 0) CHECK(write(fd, "more", 4) == 4);
        return 0;
    }
    int plain(const char* path, const struct stat* status, int kind) {
        return of(path, status, kind, 0);
    }
    mkdir("z", 0700), close(put("z/walked", "12345678", 8));
    CHECK(nftw(".", of, 10, FTW_PHYS) == 0 && ftw(".", plain, 10) == 0);
    CHECK(nftw("walked", of, 10, 0) == 0);
""",
    "fts": r"""
    put("walked", "text", 4);
    char* roots[] = {".", 0};
    FTS* tree = fts_open(roots, FTS_PHYSICAL, 0);
    FTSENT* entry = fts_read(tree);
    for (entry = fts_children(tree, 0); entry != 0; entry = entry->fts_link)
        if (strcmp(entry->fts_name, "walked") == 0) printf("%ld\n", entry->fts_statp->st_size);
    while ((entry = fts_read(tree)) != 0)
        if (strcmp(entry->fts_name, "walked") == 0) printf("%ld\n", entry->fts_statp->st_size);
    fts_close(tree);
""",
    "aio": r"""
    char in[20] = {0};
    int fd = put("a", "0123456789", 10);
    struct aiocb block = {.aio_fildes = fd, .aio_buf = in, .aio_nbytes = 10, .aio_offset = 0};
    const struct aiocb* list[] = {&block};
    CHECK(aio_read(&block) == 0 && aio_suspend(list, 1, 0) == 0);
    printf("%ld %s\n", (long)aio_return(&block), in);
    CHECK(pwrite(fd, "xy", 2, 4) == 2);
    block.aio_buf = "AB", block.aio_nbytes = 2, block.aio_offset = 5;
    CHECK(aio_write(&block) == 0 && aio_suspend(list, 1, 0) == 0 && aio_return(&block) == 2);
    show("a");
    int other = put("b", "0123456789", 10);
    memset(in, 0, sizeof in);
    struct aiocb read = {.aio_fildes = other, .aio_buf = in, .aio_nbytes = 10,
                         .aio_lio_opcode = LIO_READ};
    struct aiocb write = {.aio_fildes = fd, .aio_buf = "zz", .aio_nbytes = 2, .aio_offset = 9,
                          .aio_lio_opcode = LIO_WRITE};
    struct aiocb* both[] = {&read, 0, &write};
    CHECK(pwrite(other, "q", 1, 1) == 1 && lio_listio(LIO_WAIT, both, 3, 0) == 0);
    printf("%ld %s %ld\n", (long)aio_return(&read), in, (long)aio_return(&write));
    CHECK(pwrite(fd, "w", 1, 0) == 1 && aio_fsync(O_SYNC, &block) == 0);
    CHECK(aio_suspend(list, 1, 0) == 0 && aio_return(&block) == 0);
    show("a");
""",
    "dprintf": r"""
    int fd = put("a", "0123456789", 10);
    CHECK(dprintf(fd, "%d text", 5) == 6 && write(fd, "end", 3) == 3);
    lseek(fd, 2, SEEK_SET);
    CHECK(dprintf(fd, "%s", "XY") == 2);
    printf("%ld\n", (long)lseek(fd, 0, SEEK_CUR));
    show("a");
""",
    "locks": r"""
    int status, fd = put("a", "0123456789", 10);
    struct flock end = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -2, .l_len = 1};
    struct flock here = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = -5, .l_len = 2};
    CHECK(lockf(fd, F_LOCK, 10) == 0 && fcntl(fd, F_SETLK, &end) == 0);
    CHECK(write(fd, "more", 4) == 4 && fcntl(fd, F_SETLK, &here) == 0);
    if (fork() == 0) {
        for (long at = 0; at < 30;) {
            struct flock found = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at};
            CHECK(fcntl(fd, F_GETLK, &found) == 0);
            if (found.l_type == F_UNLCK) break;
            printf("%ld %ld\n", (long)found.l_start, (long)found.l_len);
            at = found.l_start + found.l_len;
        }
        fflush(stdout), _exit(0);
    }
    CHECK(wait(&status) > 0 && status == 0);
""",
    "waiting bytes": r"""
    int waiting, fd = put("a", "0123456789", 10);
    lseek(fd, 3, SEEK_SET);
    CHECK(read(fd, (char[4]){0}, 4) == 4 && ioctl(fd, FIONREAD, &waiting) == 0);
    printf("%d\n", waiting);
""",
    "a child's output": r"""
    int status, fd = put("a", "0123456789", 10);
    pid_t child;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "a", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    char* words[] = {"echo", "hi", 0};
    CHECK(posix_spawnp(&child, "echo", &actions, 0, words, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    show("a");
    CHECK(pwrite(fd, "H", 1, 0) == 1);
    show("a");
""",
    "a handle": r"""
    int mount, fd = put("a", "0123456789", 10);
    union { struct file_handle handle; char room[200]; } name = {{.handle_bytes = 128}};
    if (name_to_handle_at(AT_FDCWD, "a", &name.handle, &mount, 0) != 0) return 0;
    int root = open(".", O_RDONLY);
    int other = open_by_handle_at(root, &name.handle, O_RDWR | O_TRUNC);
    if (other < 0) return 0;
    CHECK(write(other, "abc", 3) == 3);
    show("a");
    CHECK(pread(fd, name.room, 100, 0) == 3);
""",
}


@pytest.fixture
def folders(cache: Cache, tmp_path: Path) -> list[Path]:
    """Give the cache's folder and a plain one, with a library and a catalogue in each."""
    plain = tmp_path / "plain"
    plain.mkdir()
    for folder in (cache.folder, plain):
        compiled(tmp_path, "plugin.so", "int number(void) { return 7; }")
        shutil.copy(tmp_path / "plugin.so", folder)
        (tmp_path / "messages").write_text("$set 1\n1 from the catalogue\n")
        if shutil.which("gencat") is not None:
            command = ["gencat", str(folder / "messages.cat"), str(tmp_path / "messages")]
            subprocess.run(command, check=True)
    return [cache.folder, plain]


@pytest.mark.parametrize("case", CASES)
def test_libc_finds_what_was_written(
    cache: Cache, folders: list[Path], tmp_path: Path, case: str
) -> None:
    if case == "catopen" and shutil.which("gencat") is None:
        pytest.skip("no gencat")
    text = f"{PRELUDE}int main(void) {{\n{CASES[case]}\n    return 0;\n}}\n"
    program = compiled(tmp_path, "program", text, "-U_FORTIFY_SOURCE", "-fno-builtin")
    alone = subprocess.run(
        [program], cwd=folders[1], capture_output=True, text=True, check=False, timeout=60
    )
    assert alone.returncode == 0, alone
    cache.serve()
    script = f"cd {cache.folder} && exec {program}"
    done = cache.run("sh", "-c", script, write_back=True, check=False)
    assert (done.returncode, done.stdout) == (0, alone.stdout)
    for path in folders[1].iterdir():
        if path.is_file():
            assert (cache.folder / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_library_is_found_where_the_calling_library_says(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    compiled(tmp_path / "hidden", "libplugin.so", "int number(void) { return 7; }")
    compiled(
        tmp_path,
        "libloader.so",
        'void* library; void* load(void) { return library = dlopen("libplugin.so", RTLD_NOW); }',
        f"-Wl,-rpath,{tmp_path}/hidden",
    )
    libraries = (f"-L{tmp_path}", "-lloader", f"-Wl,-rpath,{tmp_path}")
    program = compiled(tmp_path, "program", "int main(void) { return load() == 0; }", *libraries)
    assert subprocess.run([program], check=False, timeout=60).returncode == 0
    cache.serve()
    assert cache.run(program, write_back=True, check=False).returncode == 0


def test_standard_input_is_read_by_libc(cache: Cache) -> None:
    script = """
printf 'old\n' > a; cat a > /dev/null
"$1" -c 'import os; os.write(os.open("a", os.O_RDWR), b"b\\na\\nc\\n")'
sort < a
"""
    cache.serve()
    whole = f"cd {cache.folder}; {script}"
    assert cache.run("sh", "-c", whole, "sh", sys.executable, write_back=True).stdout == "a\nb\nc\n"


def test_files_of_mkstemp_stay_in_the_cache(cache: Cache, tmp_path: Path) -> None:
    text = r"""
int main(int count, char** words) {
    int fd = mkstemp(words[1]);
    char text[5000] = {0};
    CHECK(fd >= 0 && write(fd, text, 5000) == 5000 && write(fd, text, 5000) == 5000);
    return 0;
}
"""
    program = compiled(tmp_path, "program", text)
    cache.serve()
    cache.run(program, cache.folder / "aXXXXXX", write_back=True)
    assert cache.statistics()["bytes_written"] == 10_000


def test_an_allocation_of_space_that_fails_returns_the_error(cache: Cache) -> None:
    script = """
import ctypes, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"text")
for other in map(int, os.listdir("/proc/self/fd")):
    if other > fd:  # the connections too, and no more can be made
        try:
            os.close(other)
        except OSError:
            pass
resource.setrlimit(resource.RLIMIT_NOFILE, (fd + 1, fd + 1))
print(libc.posix_fallocate(fd, 0, 100), ctypes.get_errno())
print(libc.posix_fallocate(77, 0, 5), ctypes.get_errno())
"""
    cache.serve()
    path = cache.folder / "a"
    told = cache.run(sys.executable, "-c", script, path, write_back=True).stdout.splitlines()
    assert told[0] in ("0 0", "5 0")
    assert told[1] == "9 0"
