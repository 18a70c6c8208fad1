#include "file/shared_table.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "storage/system_calls.h"

namespace penstock::file {
namespace {

using chunk_table::ChunkTableHead;
using chunk_table::SharedEntry;
using chunk_table::SharedFile;
using std::memory_order_relaxed;
using std::memory_order_release;
namespace system = storage::system;

// Entries for each chunk: so few windows are full that it does not matter.
constexpr uint32_t kEntriesPerChunk = 4;

// Maps a new file of memory, whose pages cost nothing until they are used.
Status map_new(const char* name, size_t size, int* descriptor, void** mapping) {
    *descriptor = system::memfd_create(name, MFD_CLOEXEC);
    if (*descriptor < 0 || system::ftruncate(*descriptor, static_cast<off_t>(size)) != 0)
        return {errno, "file cache", "the memory that programs share cannot be made"};
    *mapping = system::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, *descriptor, 0);
    if (*mapping != MAP_FAILED) return {};
    *mapping = nullptr;
    return {errno, "file cache", "the memory that programs share cannot be mapped"};
}

}  // namespace

Result<std::unique_ptr<SharedTable>> SharedTable::create(uint32_t chunk_size,
                                                         uint32_t chunk_count) {
    std::unique_ptr<SharedTable> made(new SharedTable);
    const uint32_t entries = std::bit_ceil(chunk_count) * kEntriesPerChunk;
    made->table_size_ = chunk_table::table_size(kFiles, entries);
    made->marks_size_ = chunk_table::marks_size(kFiles, chunk_count);
    Status status = map_new("penstock-chunk-table", made->table_size_, &made->table_file_,
                            &made->table_mapping_);
    if (status.ok())
        status = map_new("penstock-chunk-marks", made->marks_size_, &made->marks_file_,
                         &made->marks_mapping_);
    if (!status.ok()) return status;
    auto* head = new (made->table_mapping_) ChunkTableHead{.shape = {.magic = chunk_table::kMagic,
                                                                     .chunk_size = chunk_size,
                                                                     .chunk_count = chunk_count,
                                                                     .file_count = kFiles,
                                                                     .entry_count = entries},
                                                           .error_count = 0};
    made->table_ = chunk_table::Table(head);
    made->marks_ = chunk_table::Marks(made->marks_mapping_, kFiles, chunk_count);
    made->published_.assign(chunk_count, nullptr);
    made->begin_life();
    return made;
}

// A thread of its own holds the mutex: whichever thread has made the cache may end before it.
void SharedTable::begin_life() {
    auto* mutex = reinterpret_cast<pthread_mutex_t*>(marks_.head);
    static_assert(sizeof(pthread_mutex_t) <= sizeof(chunk_table::MarksHead));
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    std::atomic<bool> begun{false};
    life_ = std::thread([this, mutex, &begun] {
        pthread_mutex_lock(mutex);
        begun.store(true);
        begun.notify_all();
        end_.wait(false);
        pthread_mutex_unlock(mutex);
    });
    begun.wait(false);
}

SharedTable::~SharedTable() {
    if (life_.joinable()) {
        end_.store(true);
        end_.notify_all();
        life_.join();
    }
    if (table_mapping_ != nullptr) system::munmap(table_mapping_, table_size_);
    if (marks_mapping_ != nullptr) system::munmap(marks_mapping_, marks_size_);
    for (const int descriptor : {table_file_, marks_file_})
        if (descriptor >= 0) system::close(descriptor);
}

uint32_t SharedTable::add_file(uint64_t device, uint64_t inode) {
    const uint32_t first = chunk_table::first_file(device, inode, kFiles);
    for (uint32_t i = 0; i < chunk_table::kFileWindow; ++i) {
        const uint32_t slot = (first + i) & (kFiles - 1);
        SharedFile& file = table_.files[slot];
        if (file.inode.load(memory_order_relaxed) != 0) continue;
        file.device.store(device, memory_order_relaxed);
        file.inode.store(inode, memory_order_relaxed);
        slots_used_ = std::max(slots_used_, slot + 1);
        return slot;
    }
    return kNoSlot;
}

void SharedTable::remove_file(uint32_t slot) {
    if (slot == kNoSlot) return;
    set_file(slot, false, false, {}, 0);
    SharedFile& file = table_.files[slot];
    file.device.store(0, memory_order_relaxed);
    file.inode.store(0, memory_order_relaxed);
    forget_end(slot);
    marks_.files[slot].mtime_ns.store(0, memory_order_relaxed);
    removed_.hits += marks_.files[slot].hits.exchange(0, memory_order_relaxed);
    removed_.bytes += marks_.files[slot].bytes.exchange(0, memory_order_relaxed);
}

void SharedTable::set_file(uint32_t slot, bool readable, bool same, const storage::Identity& below,
                           uint64_t size) {
    if (slot == kNoSlot) return;
    SharedFile& file = table_.files[slot];
    same = readable && (same || (file.mtime_ns.load(memory_order_relaxed) == below.mtime_ns &&
                                 file.ctime_ns.load(memory_order_relaxed) == below.ctime_ns));
    uint64_t word = file.word.load(memory_order_relaxed);
    if ((word & 1) != 0 && !same) {
        file.word.store(++word, memory_order_relaxed);
        std::atomic_thread_fence(memory_order_release);
    }
    file.size.store(size, memory_order_relaxed);
    file.mtime_ns.store(below.mtime_ns, memory_order_relaxed);
    file.ctime_ns.store(below.ctime_ns, memory_order_relaxed);
    if (readable && (word & 1) == 0) file.word.store(word + 1, memory_order_release);
}

void SharedTable::set_size(uint32_t slot, uint64_t size) {
    if (slot != kNoSlot) table_.files[slot].size.store(size, memory_order_release);
}

void SharedTable::publish(uint32_t slot, uint64_t number, ChunkId chunk) {
    if (slot == kNoSlot || published_[chunk] != nullptr || number >> chunk_table::kNumberBits != 0)
        return;
    const uint64_t key = chunk_table::key_of(slot, number);
    SharedEntry* const first = table_.entries +
                               chunk_table::first_entry(key, table_.shape.entry_count);
    for (SharedEntry* at = first; at != first + chunk_table::kWindow; ++at) {
        if (at->place.load(memory_order_relaxed) != 0) continue;
        if (++publications_ == 0) ++publications_;
        marks_.touched[chunk].store(0, memory_order_relaxed);
        at->key.store(key, memory_order_relaxed);
        at->place.store(uint64_t{publications_} << 32 | (chunk + 1), memory_order_release);
        published_[chunk] = at;
        return;
    }
}

void SharedTable::take_end(uint32_t slot, uint64_t* size) {
    if (slot == kNoSlot) return;
    *size = std::max(*size, marks_.files[slot].end.load(std::memory_order_acquire));
}

void SharedTable::forget_end(uint32_t slot) {
    if (slot != kNoSlot) marks_.files[slot].end.store(0, memory_order_relaxed);
}

int64_t SharedTable::mtime_of(uint32_t slot) const {
    return slot == kNoSlot ? 0 : marks_.files[slot].mtime_ns.load(std::memory_order_acquire);
}

void SharedTable::forget_mtime(uint32_t slot, int64_t mtime_ns) {
    if (slot != kNoSlot) marks_.files[slot].mtime_ns.compare_exchange_strong(mtime_ns, 0);
}

void SharedTable::left(ChunkId chunk) {
    SharedEntry* const entry = std::exchange(published_[chunk], nullptr);
    if (entry == nullptr) return;
    entry->place.store(0, memory_order_relaxed);
    std::atomic_thread_fence(memory_order_release);  // before other bytes are put there
}

bool SharedTable::used(ChunkId chunk) {
    std::atomic<uint8_t>& touched = marks_.touched[chunk];
    return touched.load(memory_order_relaxed) != 0 && touched.exchange(0) != 0;
}

SharedTable::Hits SharedTable::hits_of(uint32_t slot) const {
    if (slot == kNoSlot) return {};
    const chunk_table::FileMarks& file = marks_.files[slot];
    return {file.hits.load(memory_order_relaxed), file.bytes.load(memory_order_relaxed)};
}

SharedTable::Hits SharedTable::all_hits() const {
    Hits all = removed_;
    for (uint32_t slot = 0; slot < slots_used_; ++slot) {
        const Hits one = hits_of(slot);
        all.hits += one.hits;
        all.bytes += one.bytes;
    }
    return all;
}

}  // namespace penstock::file
