#include "bench/harness/plain_reads.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/units.h"
#include "bench/harness/report.h"

namespace penstock::bench {
namespace {

constexpr uint64_t kPartMin = 512 * base::kKiB;  // handing out a smaller part costs too much

// [offset, offset + size) of a file and the aligned range around it.
struct Cover {
    uint64_t offset, size;  // aligned
    bool straight;          // range and memory are aligned: needs no staging
};

Cover cover(const unsigned char* to, uint64_t size, uint64_t offset) {
    const uint64_t first = base::align_down(offset, kDirectAlignment);
    const uint64_t end = base::align_up(offset + size, kDirectAlignment);
    const bool straight = first == offset && end == offset + size &&
                          reinterpret_cast<uintptr_t>(to) % kDirectAlignment == 0;
    return {first, end - first, straight};
}

// Copies the bytes that are in both [offset, offset + size) and the staged range
// [staged_offset, staged_offset + staged_size).
void copy_staged(unsigned char* to, uint64_t size, uint64_t offset, const unsigned char* staged,
                 uint64_t staged_offset, uint64_t staged_size) {
    const uint64_t first = std::max(offset, staged_offset);
    const uint64_t end = std::min(offset + size, staged_offset + staged_size);
    std::memcpy(to + (first - offset), staged + (first - staged_offset), end - first);
}

}  // namespace

PlainReads::PlainReads(std::string path, int flags)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDONLY | O_CLOEXEC | flags)) {
    if (descriptor_ < 0) fail_reading(errno);
}

PlainReads::~PlainReads() { close(descriptor_); }

void PlainReads::fail_reading(int error) const { fail(path_ + ": " + std::strerror(error)); }

void PlainReads::pread_all(unsigned char* to, uint64_t size, uint64_t offset) const {
    while (size > 0) {
        const ssize_t got = pread(descriptor_, to, size, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail_reading(got < 0 ? errno : ENODATA);
        to += got;
        offset += static_cast<uint64_t>(got);
        size -= static_cast<uint64_t>(got);
    }
}

CachedReads::CachedReads(const std::string& path, unsigned threads, uint64_t call_size)
    : PlainReads(path, 0), crew_(threads), call_size_(call_size) {}

void CachedReads::read(unsigned char* to, uint64_t size, uint64_t offset) {
    const auto parts = static_cast<unsigned>(
        std::clamp<uint64_t>(size / kPartMin, 1, crew_.count()));
    if (parts == 1 && call_size_ == 0) return pread_all(to, size, offset);
    const uint64_t part_size = base::align_up((size + parts - 1) / parts, 4096);
    crew_.run(parts, [&](unsigned part) {
        uint64_t at = std::min(size, part * part_size);
        const uint64_t end = std::min(size, at + part_size);
        while (at < end) {
            const uint64_t step = call_size_ == 0 ? end - at : std::min(call_size_, end - at);
            pread_all(to + at, step, offset + at);
            at += step;
        }
    });
}

DirectReads::DirectReads(const std::string& path, unsigned threads, uint64_t piece_size)
    : PlainReads(path, O_DIRECT),
      crew_(threads),
      piece_size_(piece_size),
      staging_(threads * piece_size) {}

void DirectReads::read(unsigned char* to, uint64_t size, uint64_t offset) {
    const Cover whole = cover(to, size, offset);
    const uint64_t pieces = (whole.size + piece_size_ - 1) / piece_size_;
    std::atomic<uint64_t> next{0};
    crew_.run(static_cast<unsigned>(std::min<uint64_t>(pieces, crew_.count())), [&](unsigned part) {
        unsigned char* staged = staging_.data() + part * piece_size_;
        for (uint64_t piece = next++; piece < pieces; piece = next++) {
            const uint64_t at = piece * piece_size_;
            const uint64_t step = std::min(piece_size_, whole.size - at);
            if (whole.straight) {
                pread_all(to + at, step, whole.offset + at);
                continue;
            }
            pread_all(staged, step, whole.offset + at);
            copy_staged(to, size, offset, staged, whole.offset + at, step);
        }
    });
}

struct UringReads::Piece {
    unsigned char* to = nullptr;
    uint64_t size = 0;
    uint64_t offset = 0;
    uint64_t done = 0;  // bytes so far: direct reads may be short
};

UringReads::UringReads(const std::string& path, unsigned depth, uint64_t piece_size, uint64_t wrap)
    : PlainReads(path, O_DIRECT),
      depth_(depth),
      piece_size_(piece_size),
      wrap_(wrap == 0 ? UINT64_MAX : wrap),
      staging_(depth * piece_size) {
    int error = io_uring_queue_init(depth, &ring_, IORING_SETUP_COOP_TASKRUN);
    if (error == -EINVAL) error = io_uring_queue_init(depth, &ring_, 0);
    if (error < 0) fail_reading(-error);
}

UringReads::~UringReads() { io_uring_queue_exit(&ring_); }

bool UringReads::offered() {
    io_uring ring{};
    if (io_uring_queue_init(1, &ring, 0) < 0) return false;
    io_uring_queue_exit(&ring);
    return true;
}

void UringReads::submit(const Piece& piece, unsigned slot) {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);  // there is one: depth_ slots, each has one
    io_uring_prep_read(entry, descriptor(), piece.to + piece.done,
                       static_cast<unsigned>(piece.size - piece.done), piece.offset + piece.done);
    entry->user_data = slot;
}

void UringReads::read(unsigned char* to, uint64_t size, uint64_t offset) {
    const Cover whole = cover(to, size, offset);
    std::vector<Piece> slots(depth_);
    uint64_t next = 0;  // of the cover, not yet asked for
    unsigned flying = 0;
    const auto start = [&](unsigned slot) {
        if (next >= whole.size) return;
        unsigned char* place = whole.straight ? to + next % wrap_
                                              : staging_.data() + slot * piece_size_;
        slots[slot] = {place, std::min(piece_size_, whole.size - next), whole.offset + next, 0};
        next += slots[slot].size;
        submit(slots[slot], slot);
        ++flying;
    };
    for (unsigned slot = 0; slot < depth_; ++slot) start(slot);
    while (flying > 0) {
        const int error = io_uring_submit_and_wait(&ring_, 1);
        if (error < 0 && error != -EINTR) fail_reading(-error);
        io_uring_cqe* completion = nullptr;
        while (io_uring_peek_cqe(&ring_, &completion) == 0) {
            const auto slot = static_cast<unsigned>(completion->user_data);
            const int got = completion->res;
            io_uring_cqe_seen(&ring_, completion);
            if (got <= 0 && got != -EINTR && got != -EAGAIN) fail_reading(got < 0 ? -got : ENODATA);
            Piece& piece = slots[slot];
            piece.done += got > 0 ? static_cast<uint64_t>(got) : 0;
            if (piece.done < piece.size) {
                submit(piece, slot);
                continue;
            }
            --flying;
            if (!whole.straight) copy_staged(to, size, offset, piece.to, piece.offset, piece.size);
            start(slot);
        }
    }
}

}  // namespace penstock::bench
