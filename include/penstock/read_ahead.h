// Readahead for reads that a program makes by its own calls, such as pread(2): it announces to the
// OS page cache what the program reads next, where the kernel does not foresee it. Reads by
// penstock::File need no such object.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "penstock/access.h"
#include "penstock/status.h"

namespace penstock {

// The readahead of one stream of reads. One thread at a time. It starts no thread, takes no
// descriptor and reads no bytes. Source: seeds 003 (P-readahead) and 004 (signatures).
class ReadAhead {
public:
    // Begins for a regular file.
    //   descriptor  open for reading. It stays the caller's. If it gets another meaning, destroy
    //               this object: it would announce parts of the wrong file
    // Errors: EBADF when the descriptor cannot be read; EINVAL when it was opened with O_DIRECT;
    // ESPIPE, EISDIR or ENOTSUP when it is of no regular file.
    [[nodiscard]] static Result<ReadAhead> of(int descriptor);
    ReadAhead();  // of no file: only assign to it
    ReadAhead(ReadAhead&&) noexcept;
    ReadAhead& operator=(ReadAhead&&) noexcept;
    ~ReadAhead();

    // Reports that the program reads `size` bytes at `offset`. Small reads (up to 64 KiB) with
    // gaps, backward or in nested loops are followed. Never waits for bytes. Returns how many of
    // the next reads need not be reported: of cached bytes there is nothing to announce. Cost: a
    // few instructions, or a system call for each range that is announced.
    uint64_t observe(uint64_t offset, uint64_t size);
    // Announces from now on what one of `programs` says, of any size and in any order, at most 16
    // MiB ahead of the reads that are reported. After 16 reads in a row that the program does not
    // have, the reads themselves decide.
    //   programs  of an earlier run
    //   name      the file's name in that run
    // Errors: ENOENT when no program reads a file of this name.
    Status expect(const AccessPrograms& programs, std::string_view name);

private:
    struct Parts;
    explicit ReadAhead(std::unique_ptr<Parts> parts);

    std::unique_ptr<Parts> parts_;
};

}  // namespace penstock
