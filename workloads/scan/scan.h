// The log scanner: lines of files that hold any of a set of fixed strings, found by a kernel that
// streams the files.
//
// The main job (seed 003, section 6.2). For any bytes the answers equal those of
//   LC_ALL=C grep -a -F [-c | -n] [-r] -f LIST PATH...
// but texts come in byte order of their names within a directory. A Scanner belongs to one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/device.h"
#include "penstock/file_system.h"
#include "penstock/status.h"

namespace penstock::scan {

struct ScanOptions {
    // Parameters that affect behaviour.
    bool lines = false;                       // name each line; else only count
    const std::atomic<bool>* stop = nullptr;  // when it becomes true, scan() ends within a moment
    // Where the caller writes the lines, or -1. A text that is this very file would grow with every
    // line found in it: as grep does, it is refused.
    int output = -1;
    bool explain = false;  // texts are told with what the page cache did for them
    // Parameters that affect performance; 0: chosen for the device.
    uint32_t stride_size = 0;  // bytes that a block takes at once, at most 1 MiB
    unsigned threads = 0;      // GPU threads a block, at most 256
    unsigned blocks = 0;       // at most the device's permits
    bool by_lanes = false;     // CPU backend: search as a GPU does
    // CPU backend: what the OS page cache holds of files larger than a stride is mapped, and lines
    // are counted where it lies, or it is copied once for lines to be named; it does not go through
    // Penstock's page cache. Sets a handler of SIGBUS for the process, for files that become
    // shorter meanwhile; those are told as failed.
    bool map_cached = false;
    // cache_size 0: a few strides a block, as nothing is read twice. Strides are read whole, which
    // takes fewer steps with large pages.
    FileSystemOptions file_system = {.page_size = 64 << 10};
};

// What was found in one text.
struct TextResult {
    std::string path;   // as named or found; "-" is standard input
    uint64_t size = 0;  // bytes scanned
    uint64_t match_count = 0;
    Status status;  // not ok: why the text could not be read, or not to its end
    // With ScanOptions::explain: of the file, since the scanner knows it.
    FileStatistics pages;
    uint64_t line_count = 0;  // newlines up to the end of what was scanned; only with lines wanted
};

// A part of an open file that is a text of its own. It begins with a line, and ends behind a
// newline or at the end of the file.
struct TextRange {
    std::string path;             // what results and lines name
    int file = -1;                // a descriptor, open for reading; the caller closes it
    uint64_t begin = 0, end = 0;  // in bytes of the file
    uint64_t line_count = 0;      // lines of the file before `begin`
};

struct LineMatch {
    std::string_view path;
    uint64_t number = 0;     // from 1
    uint64_t offset = 0;     // of the line's first byte in the text
    std::string_view bytes;  // without its newline; valid during the call
};

struct ScanProgress {
    uint64_t done_size = 0;   // bytes searched
    uint64_t known_size = 0;  // bytes of the texts opened so far
    uint64_t text_count = 0;  // texts finished
    double seconds = 0;       // since scan() began
};

// Told what is found, in the order of the texts and lines, by the thread that called scan().
class ScanListener {
public:
    virtual ~ScanListener() = default;
    virtual void on_text(const TextResult& result) = 0;  // behind its lines
    // Whether to go on; called only when lines are wanted.
    virtual bool on_line(const LineMatch&) { return true; }
    // Whether to go on; called about ten times a second.
    virtual bool on_progress(const ScanProgress&) { return true; }
};

// Where the time went. Sums over blocks may exceed the seconds, as blocks run at the same time.
struct ScanReport {
    uint64_t text_count = 0, failed_count = 0;
    uint64_t size = 0, match_count = 0;
    bool stopped = false;
    double seconds = 0;             // of scan()
    double setup_seconds = 0;       // of create(): the pattern table, the page cache, memory
    double block_read_seconds = 0;  // in gread, over all blocks: waiting for bytes and copying them
    double block_search_seconds = 0;
    unsigned blocks = 0, threads = 0;
    uint32_t stride_size = 0;
    uint64_t table_size = 0;  // bytes of the compiled patterns
    FileSystemStatistics files;
};

class Scanner {
public:
    // Compiles the patterns and takes all memory. `patterns`: see patterns.h; none matches nothing.
    // E2BIG: patterns too long; EINVAL: options out of range; ENOMEM: the device is too small for
    // them.
    [[nodiscard]] static Result<Scanner> create(const Device& device,
                                                std::vector<std::string> patterns,
                                                const ScanOptions& options = {});

    Scanner();
    Scanner(Scanner&&) noexcept;
    Scanner& operator=(Scanner&&) noexcept;
    ~Scanner();

    // Scans the texts: files, directories with all files below them, "-" for standard input.
    // Blocks. A text that cannot be read is told in its result and is no error of the scan. Errors
    // are those of the device.
    Status scan(std::vector<std::string> paths, ScanListener& listener);
    // Scans the ranges, and no byte that was appended to their files since. Offsets and numbers of
    // lines are those of the files.
    Status scan(std::vector<TextRange> ranges, ScanListener& listener);
    // Of the last scan.
    [[nodiscard]] const ScanReport& report() const;
    // What was served, where ScanOptions::file_system asks for a log.
    [[nodiscard]] ServiceLog take_log();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock::scan
