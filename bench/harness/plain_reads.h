// What a C programmer writes instead of using the library: reads through the OS page cache, or past
// it, by one mode for everything. The baselines of benchmarks.
//
// Direct reads of what is not aligned (offset, length or address) take the aligned pieces around it
// into staging on huge pages and copy from there; through io_uring while the next ones are under
// way. One thread an object.
#pragma once

#include <liburing.h>

#include <cstdint>
#include <memory>
#include <string>

#include "bench/harness/crew.h"
#include "bench/harness/huge_buffer.h"

namespace penstock::bench {

// Of a direct read; what every disk takes.
inline constexpr uint64_t kDirectAlignment = 4096;

// A file that is open for one mode.
class PlainReads {
public:
    virtual ~PlainReads();
    PlainReads(const PlainReads&) = delete;
    PlainReads& operator=(const PlainReads&) = delete;

    // All of [offset, offset + size), which the file has; else the program ends.
    virtual void read(unsigned char* to, uint64_t size, uint64_t offset) = 0;

protected:
    PlainReads(std::string path, int flags);
    [[nodiscard]] int descriptor() const { return descriptor_; }
    // pread until `size` bytes are there.
    void pread_all(unsigned char* to, uint64_t size, uint64_t offset) const;
    [[noreturn]] void fail_reading(int error) const;

private:
    std::string path_;
    int descriptor_;
};

// pread through the page cache: the request in as many equal parts as there are threads, parts of
// 512 KiB at least, each in calls of at most `call_size` (0: one call).
class CachedReads final : public PlainReads {
public:
    CachedReads(const std::string& path, unsigned threads, uint64_t call_size);
    void read(unsigned char* to, uint64_t size, uint64_t offset) override;

private:
    Crew crew_;
    const uint64_t call_size_;
};

// pread with O_DIRECT: threads take pieces of `piece_size` in turn.
class DirectReads final : public PlainReads {
public:
    DirectReads(const std::string& path, unsigned threads, uint64_t piece_size);
    void read(unsigned char* to, uint64_t size, uint64_t offset) override;

private:
    Crew crew_;
    const uint64_t piece_size_;
    HugeBuffer staging_;  // a piece for each thread
};

// O_DIRECT by io_uring with `depth` pieces in flight.
class UringReads final : public PlainReads {
public:
    // Of aligned reads into aligned memory: what is behind the first `wrap` bytes, a multiple of
    // the piece, goes over them again. 0: nothing does.
    UringReads(const std::string& path, unsigned depth, uint64_t piece_size, uint64_t wrap = 0);
    ~UringReads() override;
    void read(unsigned char* to, uint64_t size, uint64_t offset) override;

    // Whether this kernel lets this process use io_uring.
    static bool offered();

private:
    struct Piece;
    void submit(const Piece& piece, unsigned slot);

    const unsigned depth_;
    const uint64_t piece_size_;
    const uint64_t wrap_;
    HugeBuffer staging_;  // a piece for each slot
    io_uring ring_{};
};

}  // namespace penstock::bench
