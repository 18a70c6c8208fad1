#include "chunk_cache/chunk_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <map>
#include <set>

#include "base/prng.h"
#include "testing/effort.h"

namespace penstock::chunk_cache {
namespace {

constexpr Options kSmall{.chunk_size = 16, .slab_chunks = 4, .files_max = 8};

// Fills an absent chunk, and leaves it unpinned.
ChunkId fill(ChunkCache& cache, FileId file, uint64_t number) {
    const ChunkId id = cache.take(file, number);
    EXPECT_NE(id, kNone);
    EXPECT_TRUE(cache.filled(id, true));
    cache.unpin(id);
    return id;
}

void change(ChunkCache& cache, ChunkId id, Range range) {
    cache.pin(id);
    cache.write(id, range);
    cache.unpin(id);
}

TEST(ChunkCache, GivesMemoryOfDevicesInTurn) {
    ChunkCache cache(kSmall);
    for (const uint32_t device : {0u, 1u, 2u}) cache.add_slab(device);
    const FileId file = cache.add_file().value();
    std::map<uint32_t, int> of_slab;
    for (uint64_t number = 0; number < 9; ++number)
        ++of_slab[cache.slab_of(fill(cache, file, number))];
    EXPECT_EQ(of_slab, (std::map<uint32_t, int>{{0, 3}, {1, 3}, {2, 3}}));
}

TEST(ChunkCache, PassesOverAChunkThatWasUsedSince) {
    ChunkCache cache(kSmall);
    cache.add_slab(0);
    const FileId file = cache.add_file().value();
    for (uint64_t number = 0; number < 4; ++number) fill(cache, file, number);
    fill(cache, file, 4);  // all had been used once: the hand goes round, and takes the oldest
    EXPECT_EQ(cache.find(file, 0), kNone);
    EXPECT_NE(cache.find(file, 1), kNone);
    fill(cache, file, 5);
    EXPECT_NE(cache.find(file, 1), kNone);
    EXPECT_EQ(cache.find(file, 2), kNone);
}

TEST(ChunkCache, TakesNothingThatIsDirtyPinnedOrOnItsWay) {
    ChunkCache cache(kSmall);
    cache.add_slab(0);
    const FileId file = cache.add_file().value();
    change(cache, fill(cache, file, 0), {0, 1});
    cache.pin(fill(cache, file, 1));
    fill(cache, file, 2);
    const ChunkId on_its_way = cache.take(file, 3);
    EXPECT_NE(cache.take(file, 4), kNone);  // number 2's
    EXPECT_EQ(cache.take(file, 5), kNone);
    EXPECT_EQ(cache.find(file, 2), kNone);
    cache.filled(on_its_way, false);
    cache.unpin(on_its_way);
    EXPECT_NE(cache.take(file, 5), kNone);
    EXPECT_EQ(cache.check_invariants(), 0);
}

TEST(ChunkCache, WritesBackRunsOldestFirst) {
    ChunkCache cache(kSmall);
    cache.add_slab(0);
    cache.add_slab(0);
    const FileId file = cache.add_file().value(), other = cache.add_file().value();
    change(cache, fill(cache, other, 7), {2, 3});
    change(cache, fill(cache, file, 1), {0, 16});
    change(cache, fill(cache, file, 2), {0, 5});
    change(cache, fill(cache, file, 3), {0, 16});  // no run goes on behind a gap
    change(cache, fill(cache, file, 0), {3, 16});
    std::array<ChunkId, 8> room{};
    auto run = cache.begin_write_back(kNone, room);
    ASSERT_EQ(run.size(), 1u);
    EXPECT_EQ(cache.chunk(run[0]).file, other);
    EXPECT_EQ(cache.chunk(run[0]).writing.begin, 2u);
    cache.written(run[0], true);
    run = cache.begin_write_back(file, room);
    ASSERT_EQ(run.size(), 2u);
    EXPECT_EQ(cache.chunk(run[0]).number, 1u);
    EXPECT_EQ(cache.chunk(run[1]).number, 2u);
    change(cache, run[0], {8, 9});  // meanwhile
    cache.written(run[0], true);
    cache.written(run[1], false);
    EXPECT_EQ(cache.dirty_of(file), 4u);
    EXPECT_EQ(cache.dirty_of(other), 0u);
    EXPECT_EQ(cache.chunk(run[0]).dirty.begin, 8u);
    EXPECT_EQ(cache.chunk(run[1]).dirty.end, 5u);
    EXPECT_EQ(cache.check_invariants(), 0);
}

TEST(ChunkCache, WhatIsDroppedWhileItIsUsedIsNotFoundAgain) {
    ChunkCache cache(kSmall);
    cache.add_slab(0);
    const FileId file = cache.add_file().value();
    const ChunkId filling = cache.take(file, 0), pinned = fill(cache, file, 1);
    cache.pin(pinned);
    cache.drop(file, 0, ~0ull);
    EXPECT_EQ(cache.find(file, 0), kNone);
    EXPECT_EQ(cache.find(file, 1), kNone);
    const ChunkId next = cache.take(file, 1);  // others may read the file anew
    EXPECT_NE(next, pinned);
    EXPECT_FALSE(cache.filled(filling, true));
    cache.unpin(filling);
    cache.unpin(pinned);
    EXPECT_EQ(cache.check_invariants(), 0);
    EXPECT_EQ(cache.statistics().free, 3u);
}

TEST(ChunkCache, GivesASlabBackWhenNothingIsInUse) {
    ChunkCache cache(kSmall);
    cache.add_slab(0);
    const uint32_t second = cache.add_slab(1);
    const FileId file = cache.add_file().value();
    for (uint64_t number = 0; number < 8; ++number) fill(cache, file, number);
    uint64_t dirty = 0;
    while (cache.slab_of(cache.find(file, dirty)) != second) ++dirty;
    change(cache, cache.find(file, dirty), {0, 1});
    EXPECT_EQ(cache.cheapest_slab(1), second);
    EXPECT_EQ(cache.retire_slab(second), 1u);
    EXPECT_EQ(cache.cheapest_slab(1), kNone);
    ChunkId run[1];
    cache.written(cache.begin_write_back(kNone, run)[0], true);
    EXPECT_EQ(cache.retire_slab(second), 0u);
    EXPECT_EQ(cache.statistics().chunks, 4u);
    EXPECT_EQ(cache.check_invariants(), 0);
    EXPECT_EQ(cache.use_of(1).chunks, 0u);
    cache.restore_slab(second);
    EXPECT_EQ(cache.statistics().free, 4u);
    EXPECT_EQ(cache.use_of(1).free, 4u);
}

TEST(ChunkCache, RetiresTheSlabWithTheFewestDirtyChunks) {
    ChunkCache cache(kSmall);
    for (int i = 0; i < 3; ++i) cache.add_slab(0);
    const FileId file = cache.add_file().value();
    for (uint64_t number = 0; number < 12; ++number) fill(cache, file, number);
    for (const uint32_t slab : {0u, 0u, 2u})
        for (uint64_t number = 0; number < 12; ++number) {
            const ChunkId id = cache.find(file, number);
            if (cache.slab_of(id) != slab || cache.chunk(id).state != State::kClean) continue;
            change(cache, id, {0, 1});
            break;
        }
    EXPECT_EQ(cache.cheapest_slab(0), 1u);
    EXPECT_EQ(cache.dirty_in(1), kNone);
    EXPECT_EQ(cache.retire_slab(1), 0u);
    EXPECT_EQ(cache.cheapest_slab(0), 2u);
    EXPECT_EQ(cache.slab_of(cache.dirty_in(2)), 2u);
    EXPECT_EQ(cache.open_slabs(), 2u);
    EXPECT_EQ(cache.check_invariants(), 0);
}

TEST(ChunkCache, ARetiringSlabEmptiesAsPinsAndWriteBacksEnd) {
    ChunkCache cache(kSmall);
    const uint32_t slab = cache.add_slab(0);
    const FileId file = cache.add_file().value();
    const ChunkId pinned = fill(cache, file, 0), dirty = fill(cache, file, 1);
    const ChunkId on_its_way = cache.take(file, 2);
    cache.pin(pinned);
    change(cache, dirty, {0, 1});
    EXPECT_EQ(cache.retire_slab(slab), 3u);
    EXPECT_EQ(cache.find(file, 0), pinned);  // it can be used until then
    EXPECT_EQ(cache.take(file, 3), kNone) << "no chunk of it is given to another";
    EXPECT_TRUE(cache.filled(on_its_way, true));
    cache.unpin(on_its_way);
    cache.unpin(pinned);
    ChunkId run[1];
    cache.written(cache.begin_run(cache.dirty_in(slab), run)[0], true);
    EXPECT_EQ(cache.find(file, 0), kNone);
    EXPECT_EQ(cache.retire_slab(slab), 0u);
    EXPECT_EQ(cache.check_invariants(), 0);
}

TEST(ChunkCache, KnowsSoManyFiles) {
    ChunkCache cache(kSmall);
    cache.add_slab(0);
    for (int i = 0; i < 8; ++i) (void)cache.add_file().value();
    EXPECT_EQ(cache.add_file().status().error_number(), ENFILE);
    change(cache, fill(cache, 3, 0), {0, 1});
    EXPECT_EQ(cache.remove_file(3).error_number(), EBUSY);
    EXPECT_TRUE(cache.remove_file(4).ok());
    EXPECT_EQ(cache.add_file().value(), 4u);
}

TEST(ChunkCache, AFileThatIsSetAsideHoldsUpNoOther) {
    ChunkCache cache(kSmall);
    cache.add_slab(0);
    const FileId bad = cache.add_file().value(), good = cache.add_file().value();
    std::array<ChunkId, 4> room{};
    const auto begun = [&](FileId file) {
        const auto run = cache.begin_write_back(file, room);
        return std::vector<ChunkId>(run.begin(), run.end());
    };
    std::vector<ChunkId> of_bad;
    for (const uint64_t number : {0, 2}) {
        of_bad.push_back(fill(cache, bad, number));
        change(cache, of_bad.back(), {0, 1});
    }
    const ChunkId of_good = fill(cache, good, 0);
    change(cache, of_good, {0, 1});

    ASSERT_EQ(begun(kNone), std::vector{of_bad[0]});
    cache.set_aside(bad, true);
    EXPECT_EQ(cache.aside_count(), 1u);  // the other one is being written
    cache.written(of_bad[0], false);
    EXPECT_EQ(cache.aside_count(), 2u);
    EXPECT_EQ(begun(kNone), std::vector{of_good});
    EXPECT_TRUE(begun(kNone).empty());
    cache.written(of_good, true);
    EXPECT_EQ(begun(bad), std::vector{of_bad[1]});  // what failed becomes the newest
    cache.written(of_bad[1], false);
    EXPECT_EQ(cache.check_invariants(), 0);

    change(cache, of_good, {0, 1});
    cache.set_aside(bad, false);
    EXPECT_EQ(cache.aside_count(), 0u);
    EXPECT_EQ(begun(kNone), std::vector{of_bad[0]});
    cache.drop(bad, 0, 9);
    EXPECT_EQ(begun(kNone), std::vector{of_good});
    EXPECT_EQ(cache.check_invariants(), 0);
}

// A cache whose chunks hold a stamp instead of bytes, beside the storage below and what a reader
// must see.
class Model {
public:
    explicit Model(uint64_t seed) : prng_(seed) {
        for (uint32_t device = 0; device < 3; ++device) cache_.add_slab(device);
        for (int i = 0; i < 3; ++i) (void)cache_.add_file().value();
    }

    void step() {
        const auto file = static_cast<FileId>(prng_.below(3));
        const uint64_t number = prng_.below(8);
        switch (prng_.below(10)) {
            case 9:
                cache_.set_aside(file, prng_.below(2) == 0);
                break;
            case 8:
                retire_or_restore(static_cast<uint32_t>(prng_.below(3)));
                break;
            case 0:
            case 1:
                read(file, number);
                break;
            case 2:
            case 3:
                write(file, number);
                break;
            case 4:
                begin_write_back(file);
                break;
            case 5:
                end_write_back();
                break;
            case 6:
                end_fill();
                break;
            default:
                change_below(file, number);
        }
        ASSERT_EQ(cache_.check_invariants(), 0);
    }

private:
    using Key = std::pair<FileId, uint64_t>;
    struct Fill {
        ChunkId id;
        Key key;
        uint64_t stamp;  // what storage had when it was read
    };
    struct WriteBack {
        ChunkId id;
        Key key;
        uint64_t stamp;
    };

    [[nodiscard]] uint64_t seen(Key key) {
        const auto found = cached_.find(key);
        return found == cached_.end() ? below_[key] : found->second;
    }

    void read(FileId file, uint64_t number) {
        const Key key{file, number};
        const ChunkId id = cache_.find(file, number);
        if (id == kNone) {
            const ChunkId taken = cache_.take(file, number);
            if (taken != kNone) fills_.push_back({taken, key, below_[key]});
        } else if (cache_.chunk(id).state != State::kFilling) {
            ASSERT_EQ(memory_[id], seen(key)) << "file " << file << " chunk " << number;
            if (prng_.below(4) == 0) {
                cache_.pin(id);
                readers_.emplace_back(id, key);
            }
        }
        if (readers_.size() > 2) end_read();
    }
    // A reader that took its time finds bytes of its chunk, of now or of before a change.
    void end_read() {
        const auto [id, key] = readers_.front();
        readers_.erase(readers_.begin());
        const Chunk& chunk = cache_.chunk(id);
        ASSERT_TRUE(chunk.stale || Key(chunk.file, chunk.number) == key);
        if (!chunk.stale) {
            ASSERT_EQ(memory_[id], seen(key));
        }
        cache_.unpin(id);
    }
    void write(FileId file, uint64_t number) {
        const ChunkId id = cache_.find(file, number);
        if (id == kNone || cache_.chunk(id).state == State::kFilling) return;
        memory_[id] = cached_[{file, number}] = ++stamp_;
        change(cache_, id, {0, kSmall.chunk_size});
    }
    void begin_write_back(FileId file) {
        std::array<ChunkId, 3> room{};
        const FileId of = prng_.below(2) == 0 ? file : kNone;
        for (const ChunkId id : cache_.begin_write_back(of, room)) {
            const Chunk& chunk = cache_.chunk(id);
            writing_.push_back({id, {chunk.file, chunk.number}, memory_[id]});
        }
    }
    void end_write_back() {
        if (writing_.empty()) return;
        const size_t which = prng_.below(writing_.size());
        const WriteBack done = writing_[which];
        writing_.erase(writing_.begin() + static_cast<ptrdiff_t>(which));
        const bool good = prng_.below(4) != 0;
        const bool dropped = cache_.chunk(done.id).stale;
        if (good && !dropped) below_[done.key] = done.stamp;
        cache_.written(done.id, good);
        if (good && !dropped && cached_[done.key] == done.stamp) cached_.erase(done.key);
    }
    void end_fill() {
        if (fills_.empty()) return;
        const size_t which = prng_.below(fills_.size());
        const Fill fill = fills_[which];
        fills_.erase(fills_.begin() + static_cast<ptrdiff_t>(which));
        const bool good = prng_.below(4) != 0;
        memory_[fill.id] = good ? fill.stamp : kGarbage;
        cache_.filled(fill.id, good);
        cache_.unpin(fill.id);
    }
    // A slab whose memory is gone has no bytes of before.
    void retire_or_restore(uint32_t slab) {
        const bool retires = std::exchange(retired_[slab], !retired_[slab]);
        if (retires) {
            cache_.restore_slab(slab);
        } else if (cache_.retire_slab(slab) == 0) {
            for (ChunkId id = slab * 4; id < slab * 4 + 4; ++id) memory_[id] = kGarbage;
        }
    }
    // Another program changes the file, and the cache is told.
    void change_below(FileId file, uint64_t number) {
        below_[{file, number}] = ++stamp_;
        cached_.erase({file, number});
        cache_.drop(file, number, number);
    }

    ChunkCache cache_{kSmall};
    base::Prng prng_;
    uint64_t stamp_ = 0;
    std::array<bool, 3> retired_{};
    std::map<ChunkId, uint64_t> memory_;
    std::map<Key, uint64_t> below_, cached_;  // cached_: what is newer than storage
    std::vector<Fill> fills_;
    std::vector<WriteBack> writing_;
    std::vector<std::pair<ChunkId, Key>> readers_;
    static constexpr uint64_t kGarbage = ~0ull;
};

TEST(ChunkCache, RandomUseShowsTheNewestBytes) {
    for (uint64_t seed = 0; seed < testing::effort(2000, 200, 50'000); ++seed) {
        Model model(seed);
        for (int i = 0; i < 400 && !HasFatalFailure(); ++i) model.step();
        if (HasFatalFailure()) FAIL() << "seed " << seed;
    }
}

}  // namespace
}  // namespace penstock::chunk_cache
