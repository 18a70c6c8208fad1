// Goal: the arena gives aligned, zeroed memory that nobody else has, and takes all of it back.
#include "backend/cpu/arena.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace penstock::backend::cpu {
namespace {

constexpr size_t kSize = 64 << 20;

bool all_are(const char* bytes, size_t size, char value) {
    return bytes[0] == value && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

struct Piece {
    char* bytes;
    size_t size;
    char mark;
};

TEST(Arena, PiecesAreAlignedZeroedAndApart) {
    auto arena = Arena::open(kSize);
    ASSERT_TRUE(arena.ok());
    unsigned seed = 20261120;
    std::mt19937 random(seed);
    std::vector<Piece> pieces;
    for (unsigned step = 0; step < 400; ++step) {
        if (!pieces.empty() && random() % 2 == 0) {
            size_t which = random() % pieces.size();
            Piece piece = pieces[which];
            EXPECT_TRUE(all_are(piece.bytes, piece.size, piece.mark)) << seed;
            arena.value()->free(piece.bytes);
            pieces[which] = pieces.back();
            pieces.pop_back();
            continue;
        }
        size_t size = random() % 4 == 0 ? random() % (8 << 20) + 1 : random() % 100000 + 1;
        Memory memory = random() % 5 == 0 ? Memory::kPinned : Memory::kDevice;
        void* out = nullptr;
        Status status = arena.value()->allocate(size, memory, &out);
        if (!status.ok()) {
            EXPECT_EQ(status.error_number(), ENOMEM);
            continue;
        }
        EXPECT_EQ(reinterpret_cast<uintptr_t>(out) % (size >= 2 << 20 ? 2 << 20 : 4096), 0u)
            << seed;
        Piece piece{static_cast<char*>(out), size, static_cast<char>(step % 127 + 1)};
        EXPECT_TRUE(all_are(piece.bytes, size, 0)) << seed << " step " << step;
        std::memset(piece.bytes, piece.mark, size);
        pieces.push_back(piece);
    }
    for (const Piece& piece : pieces) arena.value()->free(piece.bytes);
    EXPECT_EQ(arena.value()->free_size(), kSize);
    void* all = nullptr;
    EXPECT_TRUE(arena.value()->allocate(kSize, Memory::kDevice, &all).ok());
}

TEST(Arena, FullIsAnError) {
    auto arena = Arena::open(4 << 20);
    void* out = nullptr;
    EXPECT_EQ(arena.value()->allocate(0, Memory::kDevice, &out).error_number(), EINVAL);
    EXPECT_EQ(arena.value()->allocate(5 << 20, Memory::kDevice, &out).error_number(), ENOMEM);
    EXPECT_TRUE(arena.value()->allocate(3 << 20, Memory::kDevice, &out).ok());
    EXPECT_EQ(arena.value()->allocate(2 << 20, Memory::kDevice, &out).error_number(), ENOMEM);
    EXPECT_EQ(arena.value()->free_size(), size_t{1} << 20);
    arena.value()->free(nullptr);
}

}  // namespace
}  // namespace penstock::backend::cpu
