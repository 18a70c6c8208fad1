// Goal: traces of the three forms become the streams they tell, whatever chunks they come in;
// nothing is lost without being counted; damaged and hostile text ends in an error that names the
// line, or in counts, never in a crash or a wrong number.
#include "access/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/prng.h"

namespace penstock::access {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Trace must_read(TraceForm form, std::string_view text) {
    auto trace = read_trace(form, text);
    EXPECT_TRUE(trace.ok()) << trace.status().message();
    return std::move(trace.value());
}

// The error's line, or "" without one.
std::string error_of(TraceForm form, std::string_view text) {
    TraceReader reader(form);
    Status status = reader.read(text);
    if (status.ok()) status = reader.finish();
    return status.ok() ? "" : reader.message();
}

const TraceStream* find(const Trace& trace, std::string_view file, Operation operation,
                        uint64_t rank) {
    for (const TraceStream& one : trace.streams) {
        if (one.key.file == file && one.key.operation == operation && one.key.first_rank == rank) {
            return &one;
        }
    }
    return nullptr;
}

uint64_t skipped(const Trace& trace, std::string_view cause) {
    for (const TraceSkip& one : trace.skips) {
        if (one.cause == cause) return one.count;
    }
    return 0;
}

constexpr const char* kOwn =
    "penstock-trace 1\n"
    "# time_ns stream op file offset size\n"
    "\n"
    "100 0 r /data/a%20b 0 4096\n"
    "200 1 r /data/a%20b 65536 4096\n"
    "150 0 r /data/a%20b 4096 4096\r\n"
    "120 0 r /data/a%20b 8192 4096\n"
    "300 0 w /data/%25 9223372036854775806 1\n";

TEST(Trace, OurOwnFormIsReadAndTimeNeverFalls) {
    const Trace trace = must_read(TraceForm::kPenstock, kOwn);
    ASSERT_EQ(trace.streams.size(), 3U);
    const TraceStream* first = find(trace, "/data/a b", Operation::kRead, 0);
    ASSERT_NE(first, nullptr);
    EXPECT_THAT(first->accesses,
                ElementsAre(Access{0, 4096}, Access{4096, 4096}, Access{8192, 4096}));
    EXPECT_THAT(first->times_ns, ElementsAre(100, 150, 150));
    EXPECT_EQ(trace.clock_jumps, 1U);
    EXPECT_EQ(trace.accesses, 5U);
    EXPECT_EQ(trace.lines, 8U);
    EXPECT_THAT(trace.skips, IsEmpty());
    ASSERT_NE(find(trace, "/data/%", Operation::kWrite, 0), nullptr);
}

TEST(Trace, WhatIsWrongWithOurOwnFormIsSaidWithItsLine) {
    const std::string head = "penstock-trace 1\n";
    const auto error = [&](const std::string& line) {
        return error_of(TraceForm::kPenstock, head + "1 0 r /a 0 1\n" + line);
    };
    EXPECT_EQ(error("x 0 r /a 0 1\n"), "line 3: the time is no number of nanoseconds");
    EXPECT_EQ(error("-1 0 r /a 0 1\n"), "line 3: the time is no number of nanoseconds");
    EXPECT_EQ(error("1 0x1 r /a 0 1\n"), "line 3: the stream is no number");
    EXPECT_EQ(error("1 0 q /a 0 1\n"), "line 3: the operation is not r or w");
    EXPECT_EQ(error("1 0 r /a%2 0 1\n"), "line 3: the file name is not well written");
    EXPECT_EQ(error("1 0 r /a%zz 0 1\n"), "line 3: the file name is not well written");
    EXPECT_EQ(error("1 0 r /a -5 1\n"), "line 3: the offset is no offset");
    EXPECT_EQ(error("1 0 r /a 99999999999999999999 1\n"), "line 3: the offset is no offset");
    EXPECT_EQ(error("1 0 r /a 0 -1\n"), "line 3: the size is no size");
    EXPECT_EQ(error("1 0 r /a 0 1 \n"),
              "line 3: there are not six fields with single spaces between");
    EXPECT_EQ(error("1 0 r /a 0\n"), "line 3: there are not six fields with single spaces between");
    EXPECT_EQ(error("1 0 r /a 9223372036854775807 1\n"), "line 3: the access ends beyond 2^63");
    EXPECT_EQ(error("1 0 r /a 0 40"), "line 3: the last line is cut off");
    EXPECT_EQ(error_of(TraceForm::kPenstock, ""), "line 0: the trace is empty");
    EXPECT_EQ(error_of(TraceForm::kPenstock, "penstock-trace 2\n1 0 r /a 0 1\n"),
              "line 1: a version of the form that is not known");
    EXPECT_EQ(error_of(TraceForm::kPenstock, "1 0 r /a 0 1\n"),
              "line 1: the first line is not \"penstock-trace 1\"");
    EXPECT_EQ(error_of(TraceForm::kPenstock, head + std::string(kTraceLineMax + 1, 'x')),
              "line 2: the line is longer than 1 MiB");
}

TEST(Trace, AfterAnErrorWhatCameBeforeCanBeTaken) {
    TraceReader reader(TraceForm::kPenstock);
    EXPECT_FALSE(reader.read("penstock-trace 1\n1 0 r /a 0 1\nwrong\n2 0 r /a 1 1\n").ok());
    EXPECT_FALSE(reader.read("3 0 r /a 2 1\n").ok());
    EXPECT_FALSE(reader.finish().ok());
    EXPECT_EQ(reader.take().accesses, 1U);
}

TEST(Trace, TheFormIsToldByTheBeginningsOfLines) {
    EXPECT_EQ(trace_form("penstock-trace 1\n"), TraceForm::kPenstock);
    EXPECT_EQ(trace_form("# darshan log version: 3.41\n"), TraceForm::kDarshan);
    EXPECT_EQ(trace_form("\n\n# DXT, file_id: 7, file_name: /a"), TraceForm::kDarshan);
    EXPECT_EQ(trace_form("17.1 write(1</a>, \"# darshan log version\", 21) = 21 <0.1>\n"),
              TraceForm::kStrace);
    EXPECT_EQ(trace_form(""), TraceForm::kStrace);
}

TEST(Trace, RelativeTimesOfStraceAreRefused) {
    const char* const kWhy = "times since the line before (strace -r): record with -ttt";
    EXPECT_EQ(error_of(TraceForm::kStrace, "  0.000000 brk(NULL) = 0x1\n"),
              std::string("line 1: ") + kWhy);
    EXPECT_EQ(error_of(TraceForm::kStrace, "5 0.000200 brk(NULL) = 0x1\n5 0.000100 brk(0) = 0\n"),
              std::string("line 2: ") + kWhy);
    // A clock that was set back is none.
    EXPECT_EQ(error_of(TraceForm::kStrace,
                       "5 1700000001.0 brk(NULL) = 0x1\n5 1700000000.0 brk(NULL) = 0x1\n"),
              "");
}

TEST(Trace, OffsetsAtPositionsWithoutSeeksAreWarnedOf) {
    const std::string reads =
        "17.1 openat(AT_FDCWD, \"a\", O_RDONLY) = 3</a> <0.1>\n"
        "17.2 read(3</a>, \"\", 9) = 9 <0.1>\n"
        "17.3 pread64(3</a>, \"\", 9, 0) = 9 <0.1>\n";
    const Trace filtered = must_read(TraceForm::kStrace, reads);
    ASSERT_EQ(filtered.warnings.size(), 1U);
    EXPECT_EQ(filtered.warnings[0].count, 1U);
    EXPECT_EQ(filtered.accesses, 2U);
    for (const char* last : {"exit_group(0) = ?", "lseek(3</a>, 0, SEEK_SET) = 0 <0.1>"}) {
        const Trace trace = must_read(TraceForm::kStrace, reads + "17.4 " + last + "\n");
        EXPECT_THAT(trace.warnings, IsEmpty()) << last;
    }
}

TEST(Trace, CallsThatMoveBytesAndAreNotFollowedNameTheirFile) {
    const Trace trace = must_read(
        TraceForm::kStrace,
        "17.1 copy_file_range(3</a>, NULL, 4</b c>, NULL, 100, 0) = 100 <0.1>\n"
        "17.2 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3</a>, 0) = 0x7f00 <0.1>\n"
        "17.3 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_DENYWRITE, 3</c.so>, 0) = 0x7f00 <0.1>\n"
        "17.4 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f00 <0.1>\n"
        "17.5 io_submit(0x7f, 1, [{aio_data=0x1, aio_lio_opcode=IOCB_CMD_PREAD, "
        "aio_fildes=3</a>, aio_nbytes=4096, aio_offset=0}]) = 1 <0.1>\n"
        "17.6 io_uring_enter(4<anon_inode:[io_uring]>, 1, 0, 0, NULL, 8) = 1 <0.1>\n"
        "17.7 fstat(3</a>, {st_mode=S_IFREG|0644}) = 0 <0.1>\n");
    EXPECT_EQ(skipped(trace, "copy_file_range of /a and /b c, which is not followed"), 1U);
    EXPECT_EQ(skipped(trace, "mmap of /a, which is not followed"), 1U);
    EXPECT_EQ(skipped(trace, "io_submit of /a, which is not followed"), 1U);
    EXPECT_EQ(skipped(trace, "io_uring_enter, which is not followed"), 1U);
    EXPECT_EQ(skipped(trace, "a call that is not followed"), 3U);
}

TEST(Trace, ThreadsOfDarshanAreStreamsOfTheirOwn) {
    const auto text = [](const char* title, const char* first, const char* second) {
        return "# DXT, file_id: 7, file_name: /a\n# DXT, write_count: 0, read_count: 3\n"
               "# Module    Rank  Wt/Rd  Segment  Offset  Length  Start(s)  End(s)" +
               std::string(title) + "\n X_POSIX 1 read 0 0 4 0.1 0.2  " + first +
               "  \n X_POSIX 1 read 1 4 4 0.2 0.3  " + second +
               "\n X_POSIX 1 read 2 8 4 0.3 0.4  " + first + "\n";
    };
    const Trace trace = must_read(
        TraceForm::kDarshan,
        text("  [OST]     Pthread-ID", "[106]  140498826330816", "[7]  140498826330999"));
    ASSERT_EQ(trace.streams.size(), 2U);
    EXPECT_EQ(trace.streams[0].thread, 0U);
    EXPECT_EQ(trace.streams[1].thread, 1U);
    EXPECT_THAT(trace.streams[0].accesses, ElementsAre(Access{0, 4}, Access{8, 4}));
    // A log of an older version has no threads, nor has a column of numbers in brackets.
    EXPECT_EQ(must_read(TraceForm::kDarshan, text("  Pthread-ID", "-1", "-1")).streams.size(), 1U);
    EXPECT_EQ(must_read(TraceForm::kDarshan, text("  [OST]", "[1]", "[2]")).streams.size(), 1U);
}

constexpr const char* kStrace =
    "7 1700000000.000001 execve(\"/bin/x\", [\"x\"], 0x7ffe /* 20 vars */) = 0 <0.0002>\n"
    "7 1700000000.000100 openat(AT_FDCWD</tmp>, \"a b\", O_RDONLY) = 3</tmp/a b> <0.00001>\n"
    "7 1700000000.000200 read(3</tmp/a b>, \"x, \\\") = 9\"..., 100) = 100 <0.00001>\n"
    "7 1700000000.000300 lseek(3</tmp/a b>, 4096, SEEK_SET) = 4096 <0.00001>\n"
    "7 1700000000.000400 read(3</tmp/a b>, \"\"..., 200) = 150 <0.00001>\n"
    "7 1700000000.000500 pread64(3</tmp/a b>, \"\", 300, 8192) = 300 <0.00001>\n"
    "7 1700000000.000600 read(3</tmp/a b>,  <unfinished ...>\n"
    "8 1700000000.000650 pread64(3</tmp/a b>, \"\", 64, 0) = 64 <0.00001>\n"
    "7 1700000000.000700 <... read resumed>\"\"..., 10) = 10 <0.0001>\n"
    "7 1700000000.000800 dup(3</tmp/a b>) = 4</tmp/a b> <0.00001>\n"
    "7 1700000000.000900 read(4</tmp/a b>, \"\", 5) = 5 <0.00001>\n"
    "7 1700000000.001000 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>\n"
    "9 1700000000.001100 read(3</tmp/a b>, \"\", 6) = 6 <0.00001>\n"
    "7 1700000000.001200 <... clone resumed>) = 9 <0.0003>\n"
    "7 1700000000.001300 preadv(3</tmp/a b>, [{iov_base=\"),\", iov_len=2}, {iov_base=\"\", "
    "iov_len=3}], 2, 777) = 5 <0.00001>\n"
    "7 1700000000.001400 read(3</tmp/a b>, \"\", 7) = 0 <0.00001>\n"
    "7 1700000000.001500 read(5</tmp/none>, 0x1, 7) = -1 EBADF (Bad file descriptor) <0.0001>\n"
    "7 1700000000.001600 read(0<pipe:[77]>, \"\", 7) = 7 <0.00001>\n"
    "7 1700000000.001700 write(6<TCP:[1.1.1.1:5->2.2.2.2:6]>, \"x\", 1) = 1 <0.00001>\n"
    "7 1700000000.001800 read(9</tmp/early>, \"\", 7) = 7 <0.00001>\n"
    "7 1700000000.001900 lseek(9</tmp/early>, 0, SEEK_CUR) = 70 <0.00001>\n"
    "7 1700000000.002000 read(9</tmp/early>, \"\", 7) = 7 <0.00001>\n"
    "7 1700000000.002100 openat(AT_FDCWD</tmp>, \"log\", O_WRONLY|O_APPEND) = 8</tmp/log> <0.1>\n"
    "7 1700000000.002200 write(8</tmp/log>, \"x\", 1) = 1 <0.00001>\n"
    "7 1700000000.002300 pwrite64(3</tmp/a b>, \"x\", 1, 12) = 1 <0.00001>\n"
    "7 1700000000.002400 --- SIGCHLD {si_signo=SIGCHLD, si_pid=9} ---\n"
    "9 1700000000.002500 read(3</tmp/a b>,  <unfinished ...>\n"
    "9 1700000000.002600 +++ killed by SIGKILL +++\n"
    "strace: Process 7 detached\n";

TEST(Trace, StraceFollowsPositionsThroughDupForkAndThreads) {
    const Trace trace = must_read(TraceForm::kStrace, kStrace);
    const TraceStream* first = find(trace, "/tmp/a b", Operation::kRead, 0);
    ASSERT_NE(first, nullptr);
    EXPECT_THAT(first->accesses, ElementsAre(Access{0, 100}, Access{4096, 150}, Access{8192, 300},
                                             Access{4246, 10}, Access{4256, 5}, Access{777, 5}));
    EXPECT_EQ(first->times_ns[0], 1'700'000'000'000'200'000U);
    EXPECT_EQ(first->times_ns[3], 1'700'000'000'000'600'000U) << "when it began";
    // A thread whose clone was not seen, and a child that shares the position of its parent.
    ASSERT_NE(find(trace, "/tmp/a b", Operation::kRead, 1), nullptr);
    const TraceStream* child = find(trace, "/tmp/a b", Operation::kRead, 2);
    ASSERT_NE(child, nullptr);
    EXPECT_THAT(child->accesses, ElementsAre(Access{4261, 6}));
    const TraceStream* early = find(trace, "/tmp/early", Operation::kRead, 0);
    ASSERT_NE(early, nullptr);
    EXPECT_THAT(early->accesses, ElementsAre(Access{70, 7}));
    const TraceStream* write = find(trace, "/tmp/a b", Operation::kWrite, 0);
    ASSERT_NE(write, nullptr);
    EXPECT_THAT(write->accesses, ElementsAre(Access{12, 1}));
    EXPECT_EQ(find(trace, "/tmp/log", Operation::kWrite, 0), nullptr);

    EXPECT_EQ(skipped(trace, "a call that is not followed"), 1U);
    EXPECT_EQ(skipped(trace, "a call that moved no bytes"), 1U);
    EXPECT_EQ(skipped(trace, "a call that failed"), 1U);
    EXPECT_EQ(skipped(trace, "a descriptor of no file"), 2U);
    EXPECT_EQ(skipped(trace, "the position of the descriptor is not known"), 1U);
    EXPECT_EQ(skipped(trace, "a write that appends: its offset is not known"), 1U);
    EXPECT_EQ(skipped(trace, "a signal or an exit"), 2U);
    EXPECT_EQ(skipped(trace, "a call that never ended"), 1U);
    EXPECT_EQ(skipped(trace, "a line without a time (strace -ttt)"), 1U);
    for (const TraceSkip& one : trace.skips) {
        if (std::string_view(one.cause) == "a call that failed") {
            EXPECT_EQ(one.first_line, 17U);
        }
    }
}

TEST(Trace, StraceOfOneProcessHasNoNumbersAndAnotherPrefixOfThreads) {
    const Trace bare = must_read(TraceForm::kStrace,
                                 "1.5 openat(AT_FDCWD, \"a\", O_RDONLY) = 3</a> <0.1>\n"
                                 "1.6 read(3</a>, \"\", 10) = 10 <0.1>\n");
    ASSERT_EQ(bare.streams.size(), 1U);
    EXPECT_EQ(bare.streams[0].times_ns[0], 1'600'000'000U);
    const Trace threads = must_read(TraceForm::kStrace,
                                    "[pid  12] 1.5 pread64(3</a>, \"\", 9, 1) = 9\n"
                                    "[pid 345] 1.6 pread64(3</a>, \"\", 9, 2) = 9\n");
    EXPECT_EQ(threads.streams.size(), 2U);
}

TEST(Trace, StracePathsAreDecoded) {
    const Trace trace = must_read(
        TraceForm::kStrace, "1.5 pread64(3</a\\76\\303\\244\\n\\\\>, \"\", 9, 1) = 9 <0.1>\n");
    ASSERT_EQ(trace.streams.size(), 1U);
    EXPECT_EQ(trace.streams[0].key.file, "/a>\xc3\xa4\n\\");
}

TEST(Trace, HostileNumbersInStraceAreCountedAndNotBelieved) {
    const Trace trace = must_read(TraceForm::kStrace,
                                  "1.1 pread64(3</a>, \"\", 9, 9223372036854775807) = 9\n"
                                  "1.1 pread64(3</a>, \"\", 9, 99999999999999999999) = 9\n"
                                  "1.1 pread64(3</a>, \"\", 9, -5) = 9\n"
                                  "1.1 lseek(3</a>, 0, SEEK_END) = 9223372036854775807\n"
                                  "1.1 read(3</a>, \"\", 9) = 9\n"
                                  "1.1 read(99999999999999999999</a>, \"\", 9) = 9\n"
                                  "99999999999999.1 read(3</a>, \"\", 9) = 9\n"
                                  "1.1 read(3</a>, \"\", 9) = \n"
                                  "1.1 read(3</a>, \"never ends) = 9\n"
                                  "1.1 <... read resumed>, 9) = 9\n"
                                  "1.1 read(3</a>, \"\", 9) = 9");
    EXPECT_THAT(trace.streams, IsEmpty());
    uint64_t count = 0;
    for (const TraceSkip& one : trace.skips) count += one.count;
    EXPECT_EQ(count, 10U) << "all but lseek";
}

TEST(Trace, AStraceThatForksWithoutEndIsRefusedBeforeItFillsMemory) {
    std::string text;
    for (int i = 0; i < 1000; ++i) {
        text += "1 1.1 openat(AT_FDCWD, \"f\", O_RDONLY) = " + std::to_string(i) + "</f>\n";
    }
    for (int i = 2; i < 1000; ++i) text += "1 1.1 fork() = " + std::to_string(i) + "\n";
    EXPECT_EQ(error_of(TraceForm::kStrace, text),
              "line 1261: there are more open files than can be followed");
    // The same number of processes that end is none too many.
    std::string ending = text.substr(0, text.find("1 1.1 fork"));
    for (int i = 2; i < 3000; ++i) {
        const std::string process = std::to_string(i);
        ending += "1 1.1 fork() = " + process + "\n" + process + " 1.1 +++ exited with 0 +++\n";
    }
    EXPECT_EQ(error_of(TraceForm::kStrace, ending), "");
    // Threads that were never seen to begin cost one table.
    std::string threads;
    for (int i = 0; i < 100'000; ++i) threads += std::to_string(i) + " 1.1 getpid() = 1\n";
    EXPECT_EQ(error_of(TraceForm::kStrace, threads), "");
}

constexpr const char* kDarshan =
    "# darshan log version: 3.41\n"
    "# ***************************************************\n"
    "# DXT_POSIX module data\n"
    "# ***************************************************\n"
    "\n"
    "# DXT, file_id: 14388265063268455899, file_name: /scratch/a b\n"
    "# DXT, rank: 1, hostname: node\n"
    "# DXT, write_count: 1, read_count: 2\n"
    "# DXT, mnt_pt: /, fs_type: lustre\n"
    "# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)  [OST]\n"
    " X_POSIX       1  write        0               0         4096      0.0100      0.0110  [  3]\n"
    " X_POSIX       1   read        0           65536         4096      0.0200      0.0210  [  4]\n"
    " X_POSIX       1   read        1          131072         4096      0.0300      0.0310\n"
    "\n"
    "# DXT, file_id: 7, file_name: /scratch/c\n"
    "# DXT, rank: 0, hostname: node\n"
    "# DXT, write_count: 0, read_count: 3\n"
    " X_MPIIO       0   read        0              10           20      1.0000      1.5000\n"
    " X_MPIIO       0   read        1              -1           20      1.0000      1.5000\n"
    " X_STDIO       0   read        0              10           20      1.0000      1.5000\n";

TEST(Trace, DarshanBlocksAreStreamsOfAFileRankAndModule) {
    const Trace trace = must_read(TraceForm::kDarshan, kDarshan);
    const TraceStream* read = find(trace, "/scratch/a b", Operation::kRead, 1);
    ASSERT_NE(read, nullptr);
    EXPECT_THAT(read->accesses, ElementsAre(Access{65536, 4096}, Access{131072, 4096}));
    EXPECT_THAT(read->times_ns, ElementsAre(20'000'000, 30'000'000));
    ASSERT_NE(find(trace, "/scratch/a b", Operation::kWrite, 1), nullptr);
    const TraceStream* shared = find(trace, "/scratch/c", Operation::kRead, 0);
    ASSERT_NE(shared, nullptr);
    EXPECT_EQ(shared->key.context, 1U);
    EXPECT_EQ(shared->accesses.size(), 1U);
    EXPECT_EQ(skipped(trace, "a segment that lies in no file"), 1U);
    EXPECT_EQ(skipped(trace, "not a segment of X_POSIX or X_MPIIO"), 1U);
    EXPECT_EQ(skipped(trace, "a segment that its block announced is not there"), 1U);
}

TEST(Trace, ATextWithoutDarshansLinesIsRefused) {
    EXPECT_EQ(error_of(TraceForm::kDarshan, "hello\n"),
              "line 1: no \"# DXT\" line: not the text of darshan-dxt-parser");
}

TEST(Trace, FormsAreToldApart) {
    EXPECT_EQ(trace_form(kOwn), TraceForm::kPenstock);
    EXPECT_EQ(trace_form(kStrace), TraceForm::kStrace);
    EXPECT_EQ(trace_form(kDarshan), TraceForm::kDarshan);
}

// The whole of a trace as text, to compare two.
std::string picture(const Trace& trace) {
    std::string text = std::to_string(trace.lines) + " " + std::to_string(trace.accesses) + " " +
                       std::to_string(trace.clock_jumps) + "\n";
    for (const TraceSkip& one : trace.skips) {
        text += std::string(one.cause) + " " + std::to_string(one.count) + " " +
                std::to_string(one.first_line) + "\n";
    }
    for (const TraceStream& one : trace.streams) {
        text += one.key.file + " " + std::to_string(one.key.context) + "\n";
    }
    return text + write_trace(trace.streams);
}

TEST(Trace, ChunksMakeNoDifference) {
    const std::pair<TraceForm, const char*> texts[] = {{TraceForm::kPenstock, kOwn},
                                                       {TraceForm::kStrace, kStrace},
                                                       {TraceForm::kDarshan, kDarshan}};
    for (const auto& [form, text] : texts) {
        const std::string whole = picture(must_read(form, text));
        for (uint64_t seed = 1; seed <= 50; ++seed) {
            SCOPED_TRACE(testing::Message() << "seed " << seed);
            base::Prng prng(seed);
            TraceReader reader(form);
            for (std::string_view rest = text; !rest.empty();) {
                const size_t size = std::min<size_t>(1 + prng.below(seed * 3), rest.size());
                ASSERT_TRUE(reader.read(rest.substr(0, size)).ok());
                rest.remove_prefix(size);
            }
            ASSERT_TRUE(reader.finish().ok());
            EXPECT_EQ(picture(reader.take()), whole);
        }
    }
}

TEST(Trace, RandomStreamsComeBackFromOurOwnForm) {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        std::vector<TraceStream> streams(1 + prng.below(5));
        uint64_t time_ns = 0;
        for (size_t i = 0; i < streams.size(); ++i) {
            std::string name = "/";
            for (uint64_t k = prng.below(9); k > 0; --k)
                name += static_cast<char>(1 + prng.below(255));
            const auto operation = prng.below(2) == 0 ? Operation::kRead : Operation::kWrite;
            streams[i].key = {name, operation, 0, i, 1};
        }
        for (uint64_t i = 0; i < streams.size() + prng.below(100); ++i) {
            // Each has one, in turn, so that they appear in this order.
            TraceStream& one = streams[i < streams.size() ? i : prng.below(streams.size())];
            const auto offset = static_cast<int64_t>(prng.next() >> (1 + prng.below(60)));
            const auto size = static_cast<int64_t>(prng.next() >> (1 + prng.below(60)));
            one.accesses.push_back({offset, std::min(size, INT64_MAX - offset)});
            one.times_ns.push_back(time_ns += prng.below(1000));
        }
        const Trace back = must_read(TraceForm::kPenstock, write_trace(streams));
        ASSERT_EQ(back.streams.size(), streams.size());
        for (size_t i = 0; i < streams.size(); ++i) {
            EXPECT_EQ(back.streams[i].key, streams[i].key);
            EXPECT_EQ(back.streams[i].accesses, streams[i].accesses);
            EXPECT_EQ(back.streams[i].times_ns, streams[i].times_ns);
        }
    }
}

// Bytes of a text changed, cut, doubled and moved.
std::string damage(std::string text, base::Prng& prng) {
    constexpr std::string_view kBytes = "0123456789-<>()[]{}\"\\,=%# \n./rwXx";
    for (uint64_t count = 1 + prng.below(8); count > 0 && !text.empty(); --count) {
        const size_t at = prng.below(text.size());
        const size_t size = std::min<size_t>(prng.below(60), text.size() - at);
        switch (prng.below(5)) {
            case 0:
                text[at] = kBytes[prng.below(kBytes.size())];
                break;
            case 1:
                text[at] = static_cast<char>(prng.below(256));
                break;
            case 2:
                text.erase(at, size);
                break;
            case 3:
                text.insert(prng.below(text.size()), text.substr(at, size));
                break;
            default:
                text.insert(at, std::to_string(prng.next() >> prng.below(64)));
        }
    }
    return text;
}

TEST(Trace, DamagedTextsGiveSoundStreamsOrAnError) {
    const std::pair<TraceForm, const char*> texts[] = {{TraceForm::kPenstock, kOwn},
                                                       {TraceForm::kStrace, kStrace},
                                                       {TraceForm::kDarshan, kDarshan}};
    for (uint64_t seed = 1; seed <= 6000; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        const auto& [form, text] = texts[prng.below(3)];
        TraceReader reader(form);
        Status status = reader.read(damage(text, prng));
        if (status.ok()) status = reader.finish();
        if (!status.ok()) {
            EXPECT_THAT(reader.message(), testing::StartsWith("line "));
        }
        const Trace trace = reader.take();
        uint64_t accesses = 0;
        for (const TraceStream& one : trace.streams) {
            ASSERT_EQ(one.accesses.size(), one.times_ns.size());
            ASSERT_FALSE(one.accesses.empty());
            accesses += one.accesses.size();
            for (size_t i = 0; i < one.accesses.size(); ++i) {
                ASSERT_GE(one.accesses[i].offset, 0);
                ASSERT_GE(one.accesses[i].size, 0);
                ASSERT_LE(one.accesses[i].size, INT64_MAX - one.accesses[i].offset);
                ASSERT_TRUE(i == 0 || one.times_ns[i] >= one.times_ns[i - 1]);
            }
        }
        ASSERT_EQ(accesses, trace.accesses);
    }
}

}  // namespace
}  // namespace penstock::access
