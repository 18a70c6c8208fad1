#include "cache_connections.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "next.h"

namespace penstock::preload {
namespace {

using cache_protocol::CacheReply;
using cache_protocol::CacheRequest;
using cache_protocol::kHelloDescriptors;
using cache_protocol::Request;

constexpr int kConnectionsMax = 64;
constexpr uint32_t kMappingsMax = 16;  // services that one process can outlive
constexpr time_t kAnswerS = 5;         // the service reads slow storage for an answer
constexpr int kLongPeriods = 24;       // of kAnswerS, for what is written back
constexpr time_t kPauseS = 1;          // between attempts to connect
constexpr long kNapNs = 200'000;
constexpr int kNapsMax = 5000;        // 1 s
constexpr int kHighDescriptor = 700;  // out of the way of programs that expect small numbers

struct Connection {
    std::atomic<int> fd{-1};
    std::atomic<bool> busy{false};
    uint32_t mapping = 0;
    dev_t device = 0;  // of the socket, to know it again
    ino_t inode = 0;
};
// Constant: libraries that are initialized earlier make calls.
constinit Connection connections[kConnectionsMax];
constinit CacheMapping mappings[kMappingsMax];
std::atomic<uint32_t> mapping_count{0};
std::atomic<bool> connecting{false};
std::atomic<time_t> tried{0};
sockaddr_un address;
bool writing = false;

time_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + 1;
}

// Programs close descriptors that they do not know, and then the number is another file's.
bool is_ours(const Connection& connection, int fd) {
    struct stat status;
    return kernel::fstat(fd, &status) == 0 && status.st_dev == connection.device &&
           status.st_ino == connection.inode;
}

void drop(Connection& connection) {
    const int fd = connection.fd.exchange(-1);
    if (fd >= 0 && is_ours(connection, fd)) kernel::close(fd);
}

// Moves a descriptor out of the way. It is closed at exec.
int moved_up(int fd) {
    const int high = kernel::fcntl(fd, F_DUPFD_CLOEXEC,
                                   reinterpret_cast<void*>(static_cast<long>(kHighDescriptor)));
    if (high < 0) return fd;
    kernel::close(fd);
    return high;
}

bool connect_one(Connection& connection) {
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    fd = moved_up(fd);
    const timeval limit{kAnswerS, 0};
    struct stat status;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        kernel::fstat(fd, &status) != 0) {
        kernel::close(fd);
        return false;
    }
    connection.device = status.st_dev;
    connection.inode = status.st_ino;
    connection.fd.store(fd);
    return true;
}

// Sends a request, and receives the answer with up to kHelloDescriptors descriptors.
bool exchange(Connection& connection, CacheRequest request, int descriptor, CacheReply* reply,
              int* received) {
    const int fd = connection.fd.load();
    if (fd < 0 || !is_ours(connection, fd)) return false;
    iovec piece{&request, sizeof request};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kHelloDescriptors)] = {};
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(sizeof(int));
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &descriptor, sizeof(int));
    }
    ssize_t moved;
    do {
        moved = kernel::call(SYS_sendmsg, fd, &message, MSG_NOSIGNAL);
    } while (moved < 0 && errno == EINTR);
    if (moved != sizeof request) return false;
    piece = {reply, sizeof *reply};
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    // What is written back takes as long as storage does.
    const bool writes_back = request.kind == Request::kSync || request.kind == Request::kFlush ||
                             request.kind == Request::kPass || request.kind == Request::kGrant;
    int periods = writes_back ? kLongPeriods : 1;
    do {
        moved = kernel::call(SYS_recvmsg, fd, &message, MSG_CMSG_CLOEXEC);
    } while (moved < 0 && (errno == EINTR || (errno == EAGAIN && --periods > 0)));
    if (moved != sizeof *reply) return false;
    const cmsghdr* head = CMSG_FIRSTHDR(&message);
    if (received == nullptr) return true;
    if (head == nullptr || head->cmsg_len != CMSG_LEN(sizeof(int) * kHelloDescriptors))
        return false;
    memcpy(received, CMSG_DATA(head), sizeof(int) * kHelloDescriptors);
    return true;
}

void* map_all(int fd, int protection) {
    struct stat status;
    if (kernel::fstat(fd, &status) != 0) return nullptr;
    void* mapped = kernel::mmap(nullptr, static_cast<size_t>(status.st_size), protection,
                                MAP_SHARED, fd, 0);
    return mapped == MAP_FAILED ? nullptr : mapped;
}

// Connects to a service, and maps what it shares.
bool join(CacheMapping& mapping, Connection& connection) {
    int files[kHelloDescriptors] = {-1, -1, -1};
    CacheReply reply;
    if (!connect_one(connection) ||
        !exchange(connection, {.kind = Request::kHello, .writes = writing ? 1u : 0u}, -1, &reply,
                  files) ||
        reply.error != 0)
        return false;
    void* table = map_all(files[0], PROT_READ);
    void* arena = map_all(files[1], writing ? PROT_READ | PROT_WRITE : PROT_READ);
    void* marks = map_all(files[2], PROT_READ | PROT_WRITE);
    for (const int one : files) kernel::close(one);
    if (table == nullptr || arena == nullptr || marks == nullptr ||
        static_cast<chunk_table::ChunkTableHead*>(table)->magic != chunk_table::kMagic)
        return false;
    mapping.reader.table = chunk_table::Table(table);
    mapping.reader.marks = chunk_table::Marks(marks, mapping.reader.table.head->file_count,
                                              mapping.reader.table.head->chunk_count);
    mapping.arena = static_cast<char*>(arena);
    mapping.writer.store(reply.slot);
    return mapping.reader.marks.live();
}

const CacheMapping* last_mapping() {
    const uint32_t count = mapping_count.load(std::memory_order_acquire);
    return count == 0 ? nullptr : &mappings[count - 1];
}

// Returns the mapping in use; null if this program is not connected.
const CacheMapping* joined_cache() {
    const CacheMapping* last = last_mapping();
    return last != nullptr && last->reader.marks.live() ? last : nullptr;
}

// Threads that start together all need a connection: one connects, the others wait for a moment.
const CacheMapping* mapping_of_other_thread() {
    for (int naps = 0; connecting.load() && naps < kNapsMax; ++naps) {
        const timespec nap{0, kNapNs};
        nanosleep(&nap, nullptr);
    }
    return joined_cache();
}

// Returns a connection to the service of a mapping that nobody uses; null: there is none.
Connection* take_connection(uint32_t mapping) {
    Connection* unused = nullptr;
    for (Connection& one : connections) {
        if (one.busy.load(std::memory_order_relaxed) || one.busy.exchange(true)) continue;
        if (one.fd.load() >= 0 && one.mapping == mapping) {
            if (unused != nullptr) unused->busy.store(false);
            return &one;
        }
        if (one.fd.load() >= 0) drop(one);  // of a service that has ended
        if (unused == nullptr) {
            unused = &one;
        } else {
            one.busy.store(false);
        }
    }
    if (unused == nullptr) return nullptr;
    unused->mapping = mapping;
    if (connect_one(*unused)) return unused;
    unused->busy.store(false);
    return nullptr;
}

}  // namespace

bool set_cache_socket(const char* path, size_t size, bool writes) {
    writing = writes;
    if (size == 0 || size >= sizeof address.sun_path) return false;
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path, size);
    return true;
}

const CacheMapping* cache_by_number(uint32_t number) { return &mappings[number]; }

const CacheMapping* current_cache() {
    if (const CacheMapping* joined = joined_cache(); joined != nullptr) return joined;
    if (connecting.exchange(true)) return mapping_of_other_thread();
    const CacheMapping* other = joined_cache();  // another thread may just have connected
    if (other != nullptr || now() < tried.load() + kPauseS) {
        connecting.store(false);
        return other;
    }
    tried.store(now());
    const uint32_t count = mapping_count.load();
    Connection* connection = nullptr;
    for (Connection& one : connections)
        if (connection == nullptr && !one.busy.exchange(true)) connection = &one;
    bool joined = false;
    if (connection != nullptr && count < kMappingsMax) {
        drop(*connection);
        connection->mapping = count;
        mappings[count].number = count;
        joined = join(mappings[count], *connection);
        if (!joined) drop(*connection);
    }
    if (connection != nullptr) connection->busy.store(false);
    if (joined) mapping_count.store(count + 1, std::memory_order_release);
    connecting.store(false);
    return joined ? &mappings[count] : nullptr;
}

bool ask_cache(const CacheMapping& cache, CacheRequest request, int descriptor, CacheReply* reply) {
    *reply = {};
    if (!cache.reader.marks.live()) return false;
    for (int attempts = 0; attempts < 2; ++attempts) {
        Connection* connection = take_connection(cache.number);
        if (connection == nullptr) return false;
        // The program may have closed it: then nothing was sent, and another one is made.
        const int fd = connection->fd.load();
        const bool ours = fd >= 0 && is_ours(*connection, fd);
        const bool answered = ours && exchange(*connection, request, descriptor, reply, nullptr);
        if (!ours) connection->fd.store(-1);
        if (!answered) drop(*connection);  // a late answer must not be taken for another
        connection->busy.store(false);
        if (ours) return answered;
    }
    return false;
}

void tell_cache(const CacheMapping& cache, const CacheRequest& request) {
    Connection* connection = take_connection(cache.number);
    if (connection == nullptr) return;
    const int fd = connection->fd.load();
    if (fd >= 0 && is_ours(*connection, fd))
        kernel::call(SYS_sendto, fd, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT, nullptr,
                     0);
    connection->busy.store(false);
}

uint32_t writer_number(const CacheMapping& cache) {
    const uint32_t known = cache.writer.load(std::memory_order_relaxed);
    if (known != 0) return known;
    // A child of fork is another writer than its parent. What is mapped is mapped already.
    Connection* connection = take_connection(cache.number);
    if (connection == nullptr) return 0;
    CacheReply reply;
    int files[kHelloDescriptors] = {-1, -1, -1};
    const bool answered = exchange(
        *connection, {.kind = Request::kHello, .writes = writing ? 1u : 0u}, -1, &reply, files);
    for (const int one : files)
        if (one >= 0) kernel::close(one);
    if (!answered) drop(*connection);
    connection->busy.store(false);
    if (!answered || reply.error != 0) return 0;
    mappings[cache.number].writer.store(reply.slot);
    return reply.slot;
}

void forget_connections() {
    for (CacheMapping& one : mappings) one.writer.store(0);
    for (Connection& one : connections) {
        drop(one);
        one.busy.store(false);
    }
    connecting.store(false);
    tried.store(0);
}

}  // namespace penstock::preload
