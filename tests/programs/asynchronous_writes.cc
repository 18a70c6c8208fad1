// Writes a file by asynchronous I/O while threads read it, and looks for bytes of an earlier round.
//
//   penstock-test-asynchronous_writes FILE direct|plain read-write|write SIZE DEPTH READERS ROUNDS
//
// The file has DEPTH parts of SIZE bytes. In each round all parts are written at once, each byte
// with the round's number. When they have been written, the file must have nothing else: for a
// descriptor that was open before, and at the end for one that is opened then. Prints how many
// parts had older bytes, and exits with 1 if there were any. As xfstests' generic/451.
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr size_t kAlignment = 4096;  // that O_DIRECT asks for

struct Freed {
    void operator()(unsigned char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<unsigned char, Freed>;

Memory aligned(size_t size) {
    return Memory(static_cast<unsigned char*>(std::aligned_alloc(kAlignment, size)));
}

[[noreturn]] void fail(const char* call) {
    std::perror(call);
    std::exit(2);
}

struct Writes {
    int descriptor = -1;
    size_t size = 0, depth = 0;
};

// Writes all parts and waits for their end.
void write_all(aio_context_t context, const Writes& writes, unsigned char* bytes) {
    std::vector<iocb> calls(writes.depth);
    std::vector<iocb*> places;
    for (size_t i = 0; i < writes.depth; ++i) {
        calls[i].aio_lio_opcode = IOCB_CMD_PWRITE;
        calls[i].aio_fildes = static_cast<uint32_t>(writes.descriptor);
        calls[i].aio_buf = reinterpret_cast<uint64_t>(bytes + i * writes.size);
        calls[i].aio_nbytes = writes.size;
        calls[i].aio_offset = static_cast<int64_t>(i * writes.size);
        places.push_back(&calls[i]);
    }
    const auto count = static_cast<long>(writes.depth);
    if (syscall(SYS_io_submit, context, count, places.data()) != count) fail("io_submit");
    std::vector<io_event> events(writes.depth);
    if (syscall(SYS_io_getevents, context, count, count, events.data(), nullptr) != count)
        fail("io_getevents");
    for (const io_event& event : events) {
        if (event.res == static_cast<int64_t>(writes.size)) continue;
        std::fprintf(stderr, "a write returned %lld\n", static_cast<long long>(event.res));
        std::exit(2);
    }
}

// Returns how many parts have another byte than `wanted`.
size_t older(int descriptor, const Writes& writes, int wanted, unsigned char* bytes) {
    size_t count = 0;
    for (size_t i = 0; i < writes.depth; ++i) {
        const auto at = static_cast<off_t>(i * writes.size);
        const ssize_t got = pread(descriptor, bytes, writes.size, at);
        if (got != static_cast<ssize_t>(writes.size)) fail("pread");
        count += std::any_of(bytes, bytes + got, [&](int one) { return one != wanted; }) ? 1 : 0;
    }
    return count;
}

}  // namespace

int main(int count, char** words) {
    if (count != 8) return 2;
    const int flags = (std::string_view(words[2]) == "direct" ? O_DIRECT : 0) |
                      (std::string_view(words[3]) == "write" ? O_WRONLY : O_RDWR);
    const Writes writes{open(words[1], flags | O_CREAT, 0600), std::stoul(words[4]),
                        std::stoul(words[5])};
    const size_t all = writes.size * writes.depth;
    const unsigned long readers = std::stoul(words[6]), rounds = std::stoul(words[7]);
    // Of its last size, as only then writes are asynchronous.
    if (writes.descriptor < 0 || ftruncate(writes.descriptor, static_cast<off_t>(all)) != 0)
        fail(words[1]);
    const int reader = open(words[1], O_RDONLY);
    aio_context_t context = 0;
    if (reader < 0 || syscall(SYS_io_setup, writes.depth, &context) != 0) fail("io_setup");
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (unsigned long i = 0; i < readers; ++i)
        threads.emplace_back([&] {
            const Memory room = aligned(all);
            while (!over)
                if (pread(reader, room.get(), all, 0) < 0) fail("pread");
        });
    const Memory bytes = aligned(all), room = aligned(all);
    size_t stale = 0;
    int last = 0;
    for (unsigned long i = 0; i < rounds; ++i) {
        last = static_cast<int>(i % 255 + 1);
        std::memset(bytes.get(), last, all);
        write_all(context, writes, bytes.get());
        stale += older(reader, writes, last, room.get());
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
    const size_t stays = older(reader, writes, last, room.get());
    const int again = open(words[1], O_RDONLY);
    const size_t reopened = older(again, writes, last, room.get());
    std::printf("%zu stale, %zu stay, %zu when reopened\n", stale, stays, reopened);
    return stale + stays + reopened == 0 ? 0 : 1;
}
