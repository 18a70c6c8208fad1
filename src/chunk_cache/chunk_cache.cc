#include "chunk_cache/chunk_cache.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace penstock::chunk_cache {
namespace {

constexpr size_t kBucketsMin = 64;

Range joined(Range a, Range b) {
    if (a.empty()) return b;
    if (b.empty()) return a;
    return {std::min(a.begin, b.begin), std::max(a.end, b.end)};
}

}  // namespace

ChunkCache::ChunkCache(const Options& options) : options_(options), buckets_(kBucketsMin, kNone) {}

void ChunkCache::append(List& list, ChunkId id) {
    links_[id].previous = list.last;
    links_[id].next = kNone;
    (list.last == kNone ? list.first : links_[list.last].next) = id;
    list.last = id;
    ++list.count;
}

void ChunkCache::prepend(List& list, ChunkId id) {
    links_[id].previous = kNone;
    links_[id].next = list.first;
    (list.first == kNone ? list.last : links_[list.first].previous) = id;
    list.first = id;
    ++list.count;
}

void ChunkCache::remove(List& list, ChunkId id) {
    const Links& links = links_[id];
    (links.previous == kNone ? list.first : links_[links.previous].next) = links.next;
    (links.next == kNone ? list.last : links_[links.next].previous) = links.previous;
    --list.count;
}

size_t ChunkCache::bucket_of(FileId file, uint64_t number) const {
    // The upper bits of a product depend on all bits of its factors.
    const uint64_t mixed = (number + file * 0xd6e8feb86659fd93u) * 0x9e3779b97f4a7c15u;
    return mixed >> (64 - std::countr_zero(buckets_.size()));
}

ChunkId ChunkCache::look_up(FileId file, uint64_t number) const {
    ChunkId id = buckets_[bucket_of(file, number)];
    while (id != kNone && (chunks_[id].file != file || chunks_[id].number != number))
        id = links_[id].bucket_next;
    return id;
}

void ChunkCache::enter(ChunkId id, FileId file, uint64_t number) {
    chunks_[id].file = file;
    chunks_[id].number = number;
    ChunkId& bucket = buckets_[bucket_of(file, number)];
    links_[id].bucket_next = bucket;
    bucket = id;
    File& its = files_[file];
    links_[id].file_previous = kNone;
    links_[id].file_next = its.first;
    if (its.first != kNone) links_[its.first].file_previous = id;
    its.first = id;
    ++its.chunks;
}

void ChunkCache::leave_table(ChunkId id) {
    const Chunk& chunk = chunks_[id];
    const Links& links = links_[id];
    ChunkId* at = &buckets_[bucket_of(chunk.file, chunk.number)];
    while (*at != id) at = &links_[*at].bucket_next;
    *at = links.bucket_next;
    File& its = files_[chunk.file];
    (links.file_previous == kNone ? its.first
                                  : links_[links.file_previous].file_next) = links.file_next;
    if (links.file_next != kNone) links_[links.file_next].file_previous = links.file_previous;
    --its.chunks;
    if (publisher_ != nullptr) publisher_->left(id);
}

// Keeps one bucket for each chunk.
void ChunkCache::grow_buckets() {
    size_t count = buckets_.size();
    while (count < chunks_.size()) count *= 2;
    if (count == buckets_.size()) return;
    buckets_.assign(count, kNone);
    for (ChunkId id = 0; id < chunks_.size(); ++id) {
        if (chunks_[id].file == kNone || chunks_[id].stale) continue;
        ChunkId& bucket = buckets_[bucket_of(chunks_[id].file, chunks_[id].number)];
        links_[id].bucket_next = bucket;
        bucket = id;
    }
}

uint32_t ChunkCache::add_slab(uint32_t device) {
    const auto slab = static_cast<uint32_t>(slabs_.size());
    slabs_.push_back({.device = device, .free = {}});
    chunks_.resize(chunks_.size() + options_.slab_chunks);
    links_.resize(chunks_.size());
    grow_buckets();
    restore_slab(slab);
    return slab;
}

void ChunkCache::restore_slab(uint32_t slab) {
    Slab& restored = slabs_[slab];
    const bool was_open = restored.used && !restored.retiring;
    restored.retiring = false;
    if (!std::exchange(restored.used, true))
        for (uint32_t i = 0; i < options_.slab_chunks; ++i)
            append(restored.free, slab * options_.slab_chunks + i);
    if (was_open) return;
    ++open_slabs_;
    free_count_ += restored.free.count;
}

void ChunkCache::close_slab(uint32_t slab) {
    if (slabs_[slab].used && !slabs_[slab].retiring) {
        --open_slabs_;
        free_count_ -= slabs_[slab].free.count;
    }
    slabs_[slab].retiring = true;
}

uint32_t ChunkCache::retire_slab(uint32_t slab) {
    Slab& retired = slabs_[slab];
    PENSTOCK_CHECK(retired.used, "only a slab that was added is retired");
    close_slab(slab);
    for (uint32_t i = 0; i < options_.slab_chunks; ++i) {
        const ChunkId id = slab * options_.slab_chunks + i;
        if (chunks_[id].state == State::kClean && chunks_[id].pins == 0) make_free(id);
    }
    const uint32_t left = retired.taken;
    if (left == 0) retired = {.device = retired.device, .free = {}};
    return left;
}

ChunkId ChunkCache::dirty_in(uint32_t slab) const {
    if (slabs_[slab].dirty == 0) return kNone;
    for (const List* list : {&dirty_, &aside_})
        for (ChunkId id = list->first; id != kNone; id = links_[id].next)
            if (slab_of(id) == slab) return id;
    return kNone;
}

uint32_t ChunkCache::cheapest_slab(uint32_t device) const {
    uint32_t best = kNone;
    for (uint32_t slab = 0; slab < slabs_.size(); ++slab) {
        const Slab& one = slabs_[slab];
        if (!one.used || one.retiring || one.device != device) continue;
        const Slab& other = slabs_[best == kNone ? slab : best];
        if (best == kNone || one.dirty < other.dirty ||
            (one.dirty == other.dirty && one.taken < other.taken))
            best = slab;
    }
    return best;
}

Result<FileId> ChunkCache::add_file() {
    FileId file = static_cast<FileId>(files_.size());
    if (!free_files_.empty()) {
        file = free_files_.back();
        free_files_.pop_back();
    } else if (files_.size() >= options_.files_max) {
        return Status{ENFILE, "file cache", "it knows as many files as it can"};
    } else {
        files_.emplace_back();
        free_files_.reserve(files_.size());
    }
    files_[file] = {};
    return file;
}

Status ChunkCache::remove_file(FileId file) {
    ChunkId next = kNone;
    for (ChunkId id = files_[file].first; id != kNone; id = next) {
        next = links_[id].file_next;
        if (chunks_[id].state == State::kClean && chunks_[id].pins == 0) make_free(id);
    }
    if (files_[file].chunks > 0 || files_[file].dirty > 0)
        return {EBUSY, "file cache", "the file is in use"};
    free_files_.push_back(file);
    return {};
}

ChunkId ChunkCache::find(FileId file, uint64_t number) {
    const ChunkId id = look_up(file, number);
    if (id == kNone) {
        ++misses_;
        return kNone;
    }
    ++hits_;
    chunks_[id].touched = true;
    return id;
}

ChunkId ChunkCache::find_ready(FileId file, uint64_t number) {
    const ChunkId id = look_up(file, number);
    if (id == kNone || chunks_[id].state == State::kFilling) return kNone;
    ++hits_;
    chunks_[id].touched = true;
    return id;
}

// Takes chunks of one device in the order of its memory, so that neighbours in a file are
// neighbours there; and of several devices in turn.
ChunkId ChunkCache::take_free() {
    for (size_t i = 0; i < slabs_.size(); ++i, turn_ = next_turn()) {
        Slab& slab = slabs_[turn_];
        if (!slab.used || slab.retiring || slab.free.count == 0) continue;
        const ChunkId id = slab.free.first;
        remove(slab.free, id);
        --free_count_;
        ++slab.taken;
        for (size_t k = 0; k < slabs_.size(); ++k) {
            turn_ = next_turn();
            if (slabs_[turn_].device != slab.device) break;
        }
        return id;
    }
    return kNone;
}

// The second chance: a chunk that was used since the hand came by is passed over once.
ChunkId ChunkCache::take_victim() {
    for (uint32_t left = 2 * clean_.count; left > 0; --left) {
        const ChunkId id = clean_.first;
        Chunk& chunk = chunks_[id];
        remove(clean_, id);
        const bool used = publisher_ != nullptr && publisher_->used(id);
        if (chunk.pins > 0 || chunk.stale || std::exchange(chunk.touched, false) || used) {
            append(clean_, id);
            continue;
        }
        ++evicted_;
        leave_table(id);
        return id;
    }
    return kNone;
}

ChunkId ChunkCache::take(FileId file, uint64_t number) {
    PENSTOCK_CHECK(look_up(file, number) == kNone, "a chunk is taken only if it is absent");
    ChunkId id = take_free();
    if (id == kNone) id = take_victim();
    if (id == kNone) return kNone;
    chunks_[id] = {.state = State::kFilling, .pins = 1, .dirty = {}, .writing = {}};
    enter(id, file, number);
    return id;
}

// Gives a chunk's memory back to its slab. It is in no list, or in that of clean ones.
void ChunkCache::make_free(ChunkId id) {
    if (chunks_[id].state == State::kClean) remove(clean_, id);
    if (!chunks_[id].stale) leave_table(id);
    chunks_[id] = {};
    Slab& slab = slabs_[slab_of(id)];
    append(slab.free, id);
    if (!slab.retiring) ++free_count_;
    --slab.taken;
}

bool ChunkCache::filled(ChunkId id, bool good) {
    Chunk& chunk = chunks_[id];
    PENSTOCK_CHECK(chunk.state == State::kFilling, "only a chunk that was taken is filled");
    if (!good && !chunk.stale) detach(id);
    set_clean(id);
    chunk.touched = true;
    return !chunk.stale;
}

void ChunkCache::pin(ChunkId id) { ++chunks_[id].pins; }

void ChunkCache::unpin(ChunkId id) {
    Chunk& chunk = chunks_[id];
    PENSTOCK_CHECK(chunk.pins > 0, "a pin is dropped once");
    const bool unwanted = chunk.stale || slabs_[slab_of(id)].retiring;
    if (--chunk.pins == 0 && unwanted && chunk.state == State::kClean) make_free(id);
}

void ChunkCache::set_dirty(ChunkId id) {
    Chunk& chunk = chunks_[id];
    chunk.state = State::kDirty;
    chunk.turn = ++turns_;
    append(dirty_list_of(chunk.file), id);
}

void ChunkCache::set_clean(ChunkId id) {
    chunks_[id].state = State::kClean;
    append(clean_, id);
}

// Ends what write() began.
void ChunkCache::end_dirty(ChunkId id) {
    chunks_[id].dirty = {};
    --dirty_count_;
    --files_[chunks_[id].file].dirty;
    --slabs_[slab_of(id)].dirty;
    set_clean(id);
}

void ChunkCache::write(ChunkId id, Range range) {
    Chunk& chunk = chunks_[id];
    PENSTOCK_CHECK(chunk.pins > 0 && chunk.state != State::kFilling && chunk.state != State::kFree,
                   "bytes are written under a pin, where they have arrived");
    chunk.touched = true;
    if (chunk.stale || range.empty()) return;  // cut off meanwhile
    if (chunk.state == State::kWriting) {
        chunk.again = true;
    } else if (chunk.state == State::kClean) {
        remove(clean_, id);
        set_dirty(id);
        ++dirty_count_;
        ++files_[chunk.file].dirty;
        ++slabs_[slab_of(id)].dirty;
    }
    chunk.dirty = joined(chunk.dirty, range);
}

std::span<const ChunkId> ChunkCache::begin_write_back(FileId file, std::span<ChunkId> run) {
    return begin_run(file == kNone ? dirty_.first : oldest_dirty(file), run);
}

// Looks through the list of dirty chunks or through that of the file, whichever is shorter.
ChunkId ChunkCache::oldest_dirty(FileId file) const {
    const File& its = files_[file];
    const List& list = its.aside ? aside_ : dirty_;
    if (its.dirty == 0) return kNone;
    ChunkId oldest = kNone;
    if (list.count < its.chunks) {
        oldest = list.first;
        while (oldest != kNone && chunks_[oldest].file != file) oldest = links_[oldest].next;
        return oldest;
    }
    for (ChunkId id = its.first; id != kNone; id = links_[id].file_next)
        if (chunks_[id].state == State::kDirty &&
            (oldest == kNone || chunks_[id].turn < chunks_[oldest].turn))
            oldest = id;
    return oldest;
}

// The chunks keep about their order: a file's list has those first that came last.
void ChunkCache::set_aside(FileId file, bool aside) {
    File& its = files_[file];
    if (its.aside == aside) return;
    List& from = dirty_list_of(file);
    its.aside = aside;
    List& to = dirty_list_of(file);
    for (ChunkId id = its.first; id != kNone; id = links_[id].file_next) {
        if (chunks_[id].state != State::kDirty) continue;
        remove(from, id);
        prepend(to, id);
    }
}

std::span<const ChunkId> ChunkCache::begin_run(ChunkId id, std::span<ChunkId> run) {
    size_t count = 0;
    for (; count < run.size() && id != kNone; ++count) {
        Chunk& chunk = chunks_[id];
        run[count] = id;
        remove(dirty_list_of(chunk.file), id);
        chunk.state = State::kWriting;
        chunk.writing = std::exchange(chunk.dirty, {});
        const bool to_its_end = chunk.writing.end == options_.chunk_size;
        id = to_its_end ? look_up(chunk.file, chunk.number + 1) : kNone;
        if (id != kNone && (chunks_[id].state != State::kDirty || chunks_[id].dirty.begin != 0))
            id = kNone;
    }
    return run.first(count);
}

void ChunkCache::written(ChunkId id, bool good) {
    Chunk& chunk = chunks_[id];
    PENSTOCK_CHECK(chunk.state == State::kWriting, "only a write-back that has begun ends");
    const bool dirty = (chunk.again || !good) && !chunk.stale;
    if (!good) chunk.dirty = joined(chunk.dirty, chunk.writing);
    chunk.again = false;
    chunk.writing = {};
    if (dirty) {
        set_dirty(id);
        return;
    }
    end_dirty(id);
    const bool unwanted = chunk.stale || slabs_[slab_of(id)].retiring;
    if (unwanted && chunk.pins == 0) make_free(id);
}

// Takes a chunk out of the table whose memory is still used. It is free when that ends.
void ChunkCache::detach(ChunkId id) {
    leave_table(id);
    chunks_[id].stale = true;
}

// Forgets a chunk, as far as that is possible now.
void ChunkCache::give_up(ChunkId id) {
    Chunk& chunk = chunks_[id];
    if (chunk.state == State::kDirty) {
        remove(dirty_list_of(chunk.file), id);
        end_dirty(id);
    }
    if (chunk.state == State::kClean && chunk.pins == 0) {
        make_free(id);
    } else {
        detach(id);
    }
}

void ChunkCache::drop(FileId file, uint64_t first, uint64_t last) {
    // By number if few are meant, else by the file's list.
    if (last - first < files_[file].chunks) {
        for (uint64_t number = first; number <= last; ++number)
            if (const ChunkId id = look_up(file, number); id != kNone) give_up(id);
        return;
    }
    ChunkId next = kNone;
    for (ChunkId id = files_[file].first; id != kNone; id = next) {
        next = links_[id].file_next;
        if (chunks_[id].number >= first && chunks_[id].number <= last) give_up(id);
    }
}

Statistics ChunkCache::statistics() const {
    Statistics result{.hits = hits_, .misses = misses_, .evicted = evicted_};
    for (const Slab& slab : slabs_) {
        if (!slab.used) continue;
        result.chunks += options_.slab_chunks;
        result.free += slab.free.count;
    }
    result.clean = clean_.count;
    result.dirty = dirty_.count + aside_.count;
    result.busy = result.chunks - result.free - result.clean - result.dirty;
    return result;
}

ChunkCache::Use ChunkCache::use_of(uint32_t device) const {
    Use use;
    for (const Slab& slab : slabs_) {
        if (!slab.used || slab.device != device) continue;
        use.chunks += options_.slab_chunks;
        use.free += slab.free.count;
        use.dirty += slab.dirty;
    }
    return use;
}

uint64_t ChunkCache::dirty_end_of(FileId file) const {
    uint64_t end = 0;
    for (ChunkId id = files_[file].first; id != kNone; id = links_[id].file_next) {
        const Chunk& chunk = chunks_[id];
        if (chunk.state != State::kDirty && chunk.state != State::kWriting) continue;
        const uint32_t last = std::max(chunk.dirty.end, chunk.writing.end);
        end = std::max(end, chunk.number * options_.chunk_size + last);
    }
    return end;
}

int ChunkCache::check_invariants() const {
    uint64_t in_files = 0, dirty = 0;
    for (FileId file = 0; file < files_.size(); ++file) {
        uint32_t count = 0;
        for (ChunkId id = files_[file].first; id != kNone; id = links_[id].file_next) {
            if (chunks_[id].file != file || look_up(file, chunks_[id].number) != id) return 1;
            if (chunks_[id].state == State::kFree) return 2;
            ++count;
        }
        if (count != files_[file].chunks) return 2;
        in_files += count;
        dirty += files_[file].dirty;
    }
    if (dirty != dirty_count_) return 3;
    uint64_t free = 0, clean = 0, dirty_listed = 0, writing = 0, stale = 0, in_open = 0;
    for (uint32_t slab = 0; slab < slabs_.size(); ++slab) {
        if (slabs_[slab].used && !slabs_[slab].retiring) in_open += slabs_[slab].free.count;
        if (slabs_[slab].used &&
            slabs_[slab].free.count + slabs_[slab].taken != options_.slab_chunks)
            return 2;
        uint32_t dirty_here = 0;
        for (uint32_t i = 0; slabs_[slab].used && i < options_.slab_chunks; ++i) {
            const Chunk& chunk = chunks_[slab * options_.slab_chunks + i];
            free += chunk.state == State::kFree ? 1 : 0;
            clean += chunk.state == State::kClean ? 1 : 0;
            dirty_listed += chunk.state == State::kDirty ? 1 : 0;
            writing += chunk.state == State::kWriting ? 1 : 0;
            stale += chunk.stale ? 1 : 0;
            const bool counts = chunk.state == State::kDirty || chunk.state == State::kWriting;
            dirty_here += counts ? 1 : 0;
            if (chunk.state == State::kDirty && (chunk.dirty.empty() || chunk.stale)) return 3;
            if (chunk.state == State::kFree && (chunk.pins != 0 || chunk.file != kNone)) return 2;
        }
        if (dirty_here != slabs_[slab].dirty) return 3;
    }
    const Statistics seen = statistics();
    if (free != seen.free || clean != seen.clean || dirty_listed != seen.dirty) return 2;
    if (dirty_listed + writing != dirty_count_) return 3;
    if (in_open != free_count_) return 2;
    return in_files + free + stale == seen.chunks ? 0 : 2;
}

}  // namespace penstock::chunk_cache
