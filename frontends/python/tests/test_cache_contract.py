"""Goal: each promise that the guide makes of --write-back has tests that would find it broken."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parent
GUIDE = TESTS.parents[2] / "docs/guide/file-cache.md"

# The promise begins with these words: the tests of it, by file.
PROMISES = {
    "reads what it": ["test_cache_write_back.py::test_random_changes_are_seen_as_alone"],
    "is killed after": ["test_cache_write_back.py::test_a_writer_that_is_killed_leaves_its_grants"],
    "writes from many": ["test_cache_many_threads.py::test_no_record_of_many_threads_is_lost"],
    "writes where the disk": [
        "test_full_disk.py::test_a_program_under_write_back_learns_of_a_full_disk",
        "test_full_disk.py::test_a_file_size_limit_holds_under_write_back",
    ],
    "`fsync`, `fdatasync`": [
        "test_cache_many_threads.py::test_a_sync_by_any_descriptor_writes_back",
        "test_cache_many_threads.py::test_another_process_may_sync_what_a_program_has_written",
    ],
    "calls `ftruncate`": ["test_cache_write_back.py::test_random_changes_are_seen_as_alone"],
    "writes with `O_APPEND`": [
        "test_cache_write_back.py::test_random_changes_are_seen_as_alone",
        "test_cache_write_back.py::test_writes_of_a_shell_come_behind_those_in_the_cache",
    ],
    "maps a file": [
        "test_cache_inner_calls.py::test_libc_finds_what_was_written",
        "test_cache_coherence.py::test_maps_and_calls_see_each_other",
        "test_cache_write_back.py::test_real_programs",
    ],
    "starts a file": [
        "test_cache_started_programs.py::test_a_program_that_another_one_has_just_written_starts",
        "test_cache_started_programs.py::test_programs_outside_start_what_was_written_back",
    ],
    "asks for size": ["test_cache_write_back.py::test_the_time_of_a_change_is_that_of_the_write"],
    "sets times": ["test_cache_write_back.py::test_times_that_a_program_sets_are_kept"],
    "closes a descriptor": [
        "test_cache_raw_calls.py::test_a_number_that_changes_its_meaning_unseen_is_not_served",
        "test_cache_raw_calls.py::test_random_calls_past_libc_find_what_they_find_alone",
    ],
    "writes from memory": [
        "test_cache_write_back.py::test_memory_that_cannot_be_read_is_not_written"
    ],
    "looks at `st_ctime`": [
        "test_cache_write_back.py::test_the_time_of_a_change_is_that_of_the_write"
    ],
    "is another program": ["test_cache_write_back.py::test_writes_stay_in_the_cache"],
    "meets an error": [
        "test_cache_write_back.py::test_an_error_of_a_write_back_is_told",
        "test_cache_errors.py::test_each_descriptor_of_programs_is_told_once",
    ],
    "goes on when": ["test_cache_write_back.py::test_a_service_that_is_killed_is_told"],
    "watches the file": ["test_cache_write_back.py::test_inotify_tells_at_the_write_back"],
}


def test_each_promise_of_write_back_is_tested() -> None:
    table = GUIDE.read_text().partition("| what a program under `--write-back` does ")[2]
    rows = [line[2:] for line in table.partition("\n\n")[0].splitlines()[2:]]
    assert len(rows) == len(PROMISES)
    for row in rows:
        assert [words for words in PROMISES if row.startswith(words)] != [], row
    for tests in PROMISES.values():
        for test in tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (TESTS / file).read_text(), test
