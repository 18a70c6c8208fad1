// Goal: whatever lengths the pieces have and however short each call falls, a Scatter fills every
// byte once, in order, with calls that one preadv can take.
#include "storage/scatter.h"

#include <gtest/gtest.h>

#include "base/prng.h"

namespace penstock::storage {
namespace {

// Writes 0, 1, 2, ... into the first `size` bytes of what a call is to fill.
void fill(const Scatter::Call& call, size_t size, uint8_t* next) {
    const iovec single{call.base, call.size};
    const std::span<const iovec> pieces = call.count == 0 ? std::span(&single, 1)
                                                          : std::span(call.pieces, call.count);
    for (const iovec& piece : pieces) {
        for (size_t i = 0; i < piece.iov_len && size > 0; ++i, --size) {
            static_cast<uint8_t*>(piece.iov_base)[i] = (*next)++;
        }
    }
}

TEST(Scatter, ShortCallsFillEveryByteOnceInOrder) {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        base::Prng prng(seed);
        std::vector<uint8_t> memory(1 + prng.below(5000));
        std::vector<iovec> pieces;
        for (size_t at = 0; at < memory.size();) {
            const size_t length = std::min<size_t>(prng.below(1 + prng.below(30)),
                                                   memory.size() - at);
            pieces.push_back({memory.data() + at, length});
            at += length;
        }
        Scatter scatter(pieces, memory.size());
        uint8_t next = 0;
        uint64_t filled = 0;
        while (!scatter.done()) {
            const Scatter::Call call = scatter.next();
            ASSERT_GT(call.size, 0u);
            ASSERT_LE(call.count, kCallPiecesMax);
            const size_t got = 1 + prng.below(call.size);
            fill(call, got, &next);
            scatter.advance(got);
            filled += got;
        }
        EXPECT_EQ(filled, memory.size());
        for (size_t i = 0; i < memory.size(); ++i) {
            ASSERT_EQ(memory[i], static_cast<uint8_t>(i));
        }
    }
}

// The addresses are never followed.
TEST(Scatter, NoCallIsLongerThanTheKernelMoves) {
    const uint64_t length = uint64_t{3} << 30;
    char byte;
    const std::vector<iovec> pieces = {{&byte, 10}, {&byte, length}, {&byte, length}, {&byte, 7}};
    uint64_t left = 2 * length + 17;
    Scatter scatter(pieces, left);
    int calls = 0;
    for (; !scatter.done(); ++calls) {
        const Scatter::Call call = scatter.next();
        ASSERT_LE(call.size, kCallSizeMax);
        scatter.advance(call.size);
        left -= call.size;
    }
    EXPECT_EQ(left, 0u);
    EXPECT_EQ(calls, 6);  // 10 | two for each long one | 7
}

}  // namespace
}  // namespace penstock::storage
