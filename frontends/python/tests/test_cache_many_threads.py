"""Goal: no acknowledged write is lost where many threads and processes write the same files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from caching import PENSTOCK, Cache, needs_cache
from preloading import compiled

pytestmark = needs_cache

# Threads write records of their own into one file, by calls that are served and by others. Records
# are neighbours of other threads' and processes'. Prints how many calls failed.
RECORDS = """
#define RECORD 512
static const char* path;
static int threads, rounds, process, processes;
static int failed;
static void* work(void* number) {
    int thread = (long)number, fd = open(path, O_RDWR);
    char record[RECORD];
    for (int round = 0; round < rounds; ++round) {
        long index = ((long)round * threads + thread) * processes + process;
        memset(record, 1 + index % 250, RECORD);
        struct iovec pieces[2] = {{record, 100}, {record + 100, RECORD - 100}};
        long done = 0;
        switch ((round + thread) % 8) {
            case 0: done = pwritev(fd, pieces, 2, index * RECORD); break;
            case 1: done = lseek(fd, index * RECORD, SEEK_SET) < 0 ? -1 : write(fd, record, RECORD);
                break;
            default: done = pwrite(fd, record, RECORD, index * RECORD);
        }
        if (done != RECORD) __atomic_fetch_add(&failed, 1, 0);
        if ((round + thread) % 40 == 3 && fsync(fd) != 0) __atomic_fetch_add(&failed, 1, 0);
        if ((round + thread) % 10 == 7) {
            if (close(fd) != 0) __atomic_fetch_add(&failed, 1, 0);
            fd = open(path, O_RDWR);
        }
    }
    if (close(fd) != 0) __atomic_fetch_add(&failed, 1, 0);
    return NULL;
}
int main(int count, char** words) {
    path = words[1];
    threads = atoi(words[2]), rounds = atoi(words[3]);
    process = atoi(words[4]), processes = atoi(words[5]);
    pthread_t all[threads];
    for (long i = 0; i < threads; ++i) CHECK(pthread_create(&all[i], NULL, work, (void*)i) == 0);
    for (long i = 0; i < threads; ++i) pthread_join(all[i], NULL);
    printf("%d\\n", failed);
}
"""


@pytest.mark.parametrize(
    ("threads", "processes", "rounds"), [(1, 1, 200), (4, 2, 100), (100, 1, 30), (300, 4, 10)]
)
def test_no_record_of_many_threads_is_lost(
    tmp_path: Path, cache: Cache, threads: int, processes: int, rounds: int
) -> None:
    program = compiled(tmp_path, "records", RECORDS)
    path = cache.folder / "f"
    path.write_bytes(b"")
    cache.serve("--cache-size", "128M")
    running = [
        subprocess.Popen(
            [*PENSTOCK, "run", "--cache", str(cache.folder), "--write-back", "--", program]
            + [str(word) for word in (path, threads, rounds, number, processes)],
            env=cache.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    failed = [each.communicate(timeout=300)[0] for each in running]
    assert failed == ["0\n"] * processes
    data = path.read_bytes()
    count = rounds * threads * processes
    assert len(data) == 512 * count
    lost = [i for i in range(count) if data[512 * i : 512 * (i + 1)] != bytes([1 + i % 250]) * 512]
    assert lost == []


def test_a_program_has_as_many_descriptors_as_alone(tmp_path: Path, cache: Cache) -> None:
    text = """
    int main(int count, char** words) {
        char byte;
        int fd = open(words[1], O_RDWR), last = fd, opened = 0, many = 0;
        CHECK(pread(fd, &byte, 1, 0) == 1 && pwrite(fd, "x", 1, 0) == 1);
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        while ((fd = open(words[1], O_RDWR)) >= 0) {
            if (fd != last + 1) ++many;
            last = fd;
            ++opened;
            CHECK(pread(fd, &byte, 1, opened) == 1);
        }
        CHECK(errno == EMFILE);
        printf("%d files, the last %d, %d gaps, limit %ld\\n", opened, last, many,
               (long)limit.rlim_cur);
    }
    """
    program = compiled(tmp_path, "opener", "#include <sys/resource.h>\n" + text)
    path = cache.folder / "f"
    path.write_bytes(bytes(100_000))
    cache.serve()
    words = ["sh", "-c", f"ulimit -S -n 800; exec {program} {path}"]
    alone = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for write_back in (False, True):
        assert cache.run(*words, write_back=write_back).stdout == alone


# A file's bytes are below after a sync by any of its descriptors, also of another process.
SYNCS = """
static void write_it(const char* path, char byte) {
    char bytes[1000];
    memset(bytes, byte, 1000);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, bytes, 1000, 0) == 1000);
}
int main(int count, char** words) {
    const char* how = words[2];
    int reader = open(words[1], O_RDONLY);
    write_it(words[1], *words[3]);
    if (!strcmp(how, "fsync")) CHECK(fsync(reader) == 0);
    if (!strcmp(how, "fdatasync")) CHECK(fdatasync(dup(reader)) == 0);
    if (!strcmp(how, "syncfs")) CHECK(syncfs(reader) == 0);
    if (!strcmp(how, "sync")) sync();
    if (!strcmp(how, "sync_file_range")) CHECK(sync_file_range(reader, 0, 1000, 7) == 0);
    if (!strcmp(how, "number")) CHECK(syscall(SYS_fsync, reader) == 0);
    puts("synced");
    fflush(stdout);
    getchar();
    _exit(0);
}
"""


@pytest.mark.parametrize(
    "how", ["fsync", "fdatasync", "syncfs", "sync", "sync_file_range", "number"]
)
def test_a_sync_by_any_descriptor_writes_back(tmp_path: Path, cache: Cache, how: str) -> None:
    program = compiled(tmp_path, "syncs", SYNCS)
    path = cache.folder / "f"
    path.write_bytes(bytes(2000))
    cache.serve()
    command = [*PENSTOCK, "run", "--cache", str(cache.folder), "--write-back", "--", program]
    with subprocess.Popen(
        [*command, str(path), how, "a"],
        env=cache.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "synced\n"
        assert path.read_bytes() == b"a" * 1000 + bytes(1000)
        process.communicate("\n", timeout=60)


@pytest.mark.parametrize("write_back", [False, True])
def test_another_process_may_sync_what_a_program_has_written(
    tmp_path: Path, cache: Cache, write_back: bool
) -> None:
    program = compiled(tmp_path, "syncs", SYNCS)
    path = cache.folder / "f"
    path.write_bytes(bytes(2000))
    cache.serve()
    command = [*PENSTOCK, "run", "--cache", str(cache.folder), "--write-back", "--", program]
    with subprocess.Popen(
        [*command, str(path), "none", "a"],
        env=cache.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "synced\n"
        sync = "import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDONLY))"
        cache.run("python3", "-c", sync, path, write_back=write_back)
        assert path.read_bytes() == b"a" * 1000 + bytes(1000)
        process.communicate("\n", timeout=60)
