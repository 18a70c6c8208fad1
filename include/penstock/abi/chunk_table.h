// The chunk table of a file cache in memory that processes share: which chunk of which file lies
// where (seed 002, "chunk table"). Programs read cached bytes by it without a system call.
//
// Three mappings. The service maps all of them writable. A client maps the table and the arena
// read-only, and the marks writable: they are advice to readers, and nothing depends on them. A
// client that writes maps the arena writable too.
//
//   table: ChunkTableHead, then file_count SharedFile, then entry_count SharedEntry
//   arena: chunk_count chunks of chunk_size bytes
//   marks: MarksHead, then file_count FileMarks, then a grant and then a byte for each chunk
//
// A client that reads a range of a file
//   1. loads SharedFile::word: even means that the file must not be read by the table;
//   2. looks for the entry with the range's key and loads its place (acquire);
//   3. copies the bytes out of the chunk;
//   4. loads the place and the word again, behind a fence: if one has changed, the copy counts for
//      nothing, and the client reads the range in another way.
// The service withdraws an entry (place 0) before it gives the chunk other bytes. A place holds a
// number that grows with each publication, so a chunk that left and came back is told apart.
//
// A client may write a chunk that the service has granted. It
//   1. finds the entry, and takes the chunk's grant by compare-and-swap: it enters its number as
//      the writer, where there is none;
//   2. loads the place again: if it has changed, the grant was another file's, and it steps back;
//   3. copies its bytes in, and raises FileMarks::end to their end and mtime_ns to the present;
//   4. by compare-and-swap, adds their range to the grant's and takes its number out. If the grant
//      was withdrawn meanwhile, its bytes may be lost, and it begins again.
// The service collects a range by compare-and-swap at any time, and takes it for dirty. It
// withdraws a grant that has a writer only in need, and uses the chunk's memory for nothing else
// until that writer has stepped back or its process has ended.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace penstock::chunk_table {

inline constexpr uint64_t kMagic = 0x32656c6261742d63;  // "c-table2"
inline constexpr uint32_t kWindow = 8;       // entries that may have a key, from its first on
inline constexpr uint32_t kFileWindow = 32;  // slots that a file may have, from its first on
inline constexpr uint32_t kNumberBits = 44;  // of a key; above them the file's slot

struct TableShape {
    uint64_t magic;
    uint32_t chunk_size;  // bytes, a power of two
    uint32_t chunk_count;
    uint32_t file_count;   // a power of two
    uint32_t entry_count;  // a power of two, at least 2; kWindow entries follow beyond the last
};

struct alignas(64) ChunkTableHead {
    TableShape shape;
    // The number of the last error of a write-back, of any file. The service writes it. A client
    // notes it when it opens a file: what gets a higher number, that descriptor is told of.
    std::atomic<uint64_t> error_count;
};

// A file that the cache knows. The service writes it; the fields below `word` are valid where it is
// the same, and odd, before and after they are loaded.
struct alignas(64) SharedFile {
    std::atomic<uint64_t> word;  // grows; odd: the file may be read by the table
    std::atomic<uint64_t> device, inode;
    std::atomic<uint64_t> size;  // bytes
    std::atomic<int64_t> mtime_ns, ctime_ns;
};

struct SharedEntry {
    std::atomic<uint64_t> key;    // file slot << kNumberBits | offset / chunk size
    std::atomic<uint64_t> place;  // publication << 32 | chunk + 1; 0: none
};

// `life` is the futex word of a robust mutex that a thread of the service holds while it lives: the
// kernel marks it when the service is killed, before others can change files that it had leased.
struct alignas(64) MarksHead {
    std::atomic<uint32_t> life;
    std::byte rest[124];  // of the pthread_mutex_t
};

struct FileMarks {
    std::atomic<uint64_t> hits, bytes;  // of reads that the table served; clients add
    std::atomic<uint64_t> end;          // behind the last byte that a client has written
    // When a client has written last, as file systems tell times, in ns; 0: the file below has that
    // time. Clients raise it, and the service takes it back when it has given the file that time.
    std::atomic<int64_t> mtime_ns;
};

// A grant, from the high end: granted 1 | writer 20, 0: none | begin 21 | end 21 of the dirty range
// in bytes of the chunk; an empty range: nothing is dirty.
namespace grant {
inline constexpr uint64_t kGranted = uint64_t{1} << 63;
inline constexpr unsigned kOffsetBits = 21, kWriterShift = 2 * kOffsetBits;
inline constexpr uint64_t kOffsets = (uint64_t{1} << kOffsetBits) - 1;
inline constexpr uint32_t kWritersMax = 1 << 20;

[[nodiscard]] inline uint32_t writer(uint64_t word) {
    return static_cast<uint32_t>(word >> kWriterShift) & (kWritersMax - 1);
}
[[nodiscard]] inline uint64_t with_writer(uint64_t word, uint32_t writer) {
    constexpr uint64_t kField = uint64_t{kWritersMax - 1} << kWriterShift;
    return (word & ~kField) | uint64_t{writer} << kWriterShift;
}
[[nodiscard]] inline uint32_t begin(uint64_t word) {
    return static_cast<uint32_t>(word >> kOffsetBits & kOffsets);
}
[[nodiscard]] inline uint32_t end(uint64_t word) { return static_cast<uint32_t>(word & kOffsets); }
[[nodiscard]] inline uint64_t without_range(uint64_t word) {
    return word & ~(kOffsets << kOffsetBits | kOffsets);
}
// Joins a range to that of a grant.
[[nodiscard]] inline uint64_t with_range(uint64_t word, uint64_t first, uint64_t last) {
    if (end(word) > begin(word)) {
        if (begin(word) < first) first = begin(word);
        if (end(word) > last) last = end(word);
    }
    return without_range(word) | first << kOffsetBits | last;
}
}  // namespace grant

[[nodiscard]] inline uint64_t key_of(uint32_t file, uint64_t number) {
    return uint64_t{file} << kNumberBits | number;
}
// Takes the highest bits of the product: those below depend on no file, so that many files with one
// chunk each would share a window.
[[nodiscard]] inline uint64_t first_entry(uint64_t key, uint32_t entry_count) {
    return key * 0x9e3779b97f4a7c15u >> (std::countl_zero(uint64_t{entry_count}) + 1);
}
// The slot at which the search for a file begins.
[[nodiscard]] inline uint32_t first_file(uint64_t device, uint64_t inode, uint32_t file_count) {
    return static_cast<uint32_t>(((inode + device * 31) * 0x9e3779b97f4a7c15u) >> 40) &
           (file_count - 1);
}

[[nodiscard]] constexpr size_t table_size(uint32_t files, uint32_t entries) {
    return sizeof(ChunkTableHead) + files * sizeof(SharedFile) +
           (size_t{entries} + kWindow) * sizeof(SharedEntry);
}
[[nodiscard]] constexpr size_t marks_size(uint32_t files, uint32_t chunks) {
    return sizeof(MarksHead) + files * sizeof(FileMarks) + chunks * (sizeof(uint64_t) + 1);
}

// Returns whether a table in mappings of these sizes has the shape that its head says.
[[nodiscard]] constexpr bool is_whole(const TableShape& head, size_t table, size_t arena,
                                      size_t marks) {
    return head.magic == kMagic && std::has_single_bit(head.chunk_size) &&
           head.chunk_size <= 1u << (grant::kOffsetBits - 1) &&
           std::has_single_bit(head.file_count) && head.file_count >= kFileWindow &&
           std::has_single_bit(head.entry_count) && head.entry_count >= 2 &&
           table_size(head.file_count, head.entry_count) <= table &&
           uint64_t{head.chunk_count} * head.chunk_size <= arena &&
           marks_size(head.file_count, head.chunk_count) <= marks;
}

// Where the parts lie in their mappings.
struct Table {
    TableShape shape{};  // as it was when the table was mapped
    ChunkTableHead* head = nullptr;
    SharedFile* files = nullptr;
    SharedEntry* entries = nullptr;

    constexpr explicit Table(void* mapping = nullptr) {
        if (mapping == nullptr) return;
        head = static_cast<ChunkTableHead*>(mapping);
        shape = head->shape;
        files = reinterpret_cast<SharedFile*>(head + 1);
        entries = reinterpret_cast<SharedEntry*>(files + shape.file_count);
    }
    // Returns the entry of a key, or null. Its place may change at any time.
    [[nodiscard]] SharedEntry* find(uint64_t key) const {
        SharedEntry* at = entries + first_entry(key, shape.entry_count);
        for (SharedEntry* end = at + kWindow; at != end; ++at)
            if (at->key.load(std::memory_order_relaxed) == key &&
                at->place.load(std::memory_order_acquire) != 0)
                return at;
        return nullptr;
    }
};

struct Marks {
    MarksHead* head = nullptr;
    FileMarks* files = nullptr;
    std::atomic<uint64_t>* grants = nullptr;  // of each chunk
    std::atomic<uint8_t>* touched = nullptr;  // a byte for each chunk: 1 where it was used

    constexpr explicit Marks(void* mapping = nullptr, uint32_t file_count = 0,
                             uint32_t chunk_count = 0)
        : head(static_cast<MarksHead*>(mapping)) {
        if (mapping == nullptr) return;
        files = reinterpret_cast<FileMarks*>(head + 1);
        grants = reinterpret_cast<std::atomic<uint64_t>*>(files + file_count);
        touched = reinterpret_cast<std::atomic<uint8_t>*>(grants + chunk_count);
    }
    // Returns whether the service lives: 1 << 30 is the kernel's FUTEX_OWNER_DIED.
    [[nodiscard]] bool killed() const {
        return (head->life.load(std::memory_order_acquire) & 1u << 30) != 0;
    }
    [[nodiscard]] bool live() const {
        const uint32_t word = head->life.load(std::memory_order_acquire);
        return word != 0 && (word & 1u << 30) == 0;
    }
};

// Reads files by the table, as a client or in the service.
struct Reader {
    Table table;
    Marks marks;

    // Returns the slot of a file that may be read by the table now; file_count: there is none.
    [[nodiscard]] uint32_t find_file(uint64_t device, uint64_t inode) const {
        const uint32_t count = table.shape.file_count;
        const uint32_t first = first_file(device, inode, count);
        for (uint32_t i = 0; i < kFileWindow; ++i) {
            const uint32_t slot = (first + i) & (count - 1);
            if (is_file(slot, device, inode)) return slot;
        }
        return count;
    }
    // Returns whether a slot is that of the file, and the file may be read.
    [[nodiscard]] bool is_file(uint32_t slot, uint64_t device, uint64_t inode) const {
        const SharedFile& file = table.files[slot];
        return (file.word.load(std::memory_order_acquire) & 1) != 0 &&
               file.inode.load(std::memory_order_relaxed) == inode &&
               file.device.load(std::memory_order_relaxed) == device;
    }
    [[nodiscard]] uint64_t size_of(uint32_t slot) const {
        const uint64_t written = marks.files[slot].end.load(std::memory_order_acquire);
        const uint64_t size = table.files[slot].size.load(std::memory_order_acquire);
        return written > size ? written : size;
    }
    // Copies bytes of the file in `slot`, up to the first that is not cached, or does not belong
    // to the file. Returns how many. `copy(done, offset, size)` copies `size` bytes from `offset`
    // of the arena behind the first `done`; if it returns false, nothing more is copied.
    // `first_use` is set where a chunk was not used since it was published.
    template <class Copy>
    size_t read(uint32_t slot, uint64_t device, uint64_t inode, size_t size, uint64_t offset,
                Copy copy, bool* first_use = nullptr) const {
        const SharedFile& file = table.files[slot];
        const uint64_t word = file.word.load(std::memory_order_acquire);
        if (!is_file(slot, device, inode) || !marks.live()) return 0;
        const uint64_t end = size_of(slot);
        if (offset >= end) return 0;
        if (size > end - offset) size = end - offset;
        const uint32_t chunk_size = table.shape.chunk_size;
        size_t done = 0;
        uint64_t hits = 0;
        while (done < size) {
            const uint64_t at = offset + done, within = at & (chunk_size - 1);
            const size_t part = size - done < chunk_size - within
                                    ? size - done
                                    : static_cast<size_t>(chunk_size - within);
            const SharedEntry* entry = table.find(key_of(slot, at / chunk_size));
            const uint64_t place = entry == nullptr ? 0
                                                    : entry->place.load(std::memory_order_acquire);
            if (place == 0) break;
            const uint32_t chunk = static_cast<uint32_t>(place) - 1;
            if (chunk >= table.shape.chunk_count ||
                !copy(done, uint64_t{chunk} * chunk_size + within, part))
                break;
            std::atomic_thread_fence(std::memory_order_acquire);
            if (entry->place.load(std::memory_order_relaxed) != place ||
                file.word.load(std::memory_order_relaxed) != word || !marks.live())
                break;
            if (marks.touched[chunk].load(std::memory_order_relaxed) == 0) {
                marks.touched[chunk].store(1, std::memory_order_relaxed);
                if (first_use != nullptr) *first_use = true;
            }
            done += part;
            ++hits;
        }
        if (done > 0) {
            marks.files[slot].hits.fetch_add(hits, std::memory_order_relaxed);
            marks.files[slot].bytes.fetch_add(done, std::memory_order_relaxed);
        }
        return done;
    }
};

}  // namespace penstock::chunk_table
