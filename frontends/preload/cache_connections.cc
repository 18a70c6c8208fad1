#include "cache_connections.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "descriptors.h"
#include "next.h"
#include "start.h"

namespace penstock::preload {
namespace {

using cache_protocol::CacheReply;
using cache_protocol::CacheRequest;
using cache_protocol::kHelloDescriptors;
using cache_protocol::Request;

constexpr int kConnectionsMax = 64;    // threads that ask at once; others wait for one of these
constexpr int kIdleMax = 32;           // that stay open: each has a thread of the service
constexpr uint32_t kMappingsMax = 16;  // services that one process can outlive
constexpr time_t kAnswerS = 5;         // the service reads slow storage for an answer
constexpr int kLongPeriods = 24;       // of kAnswerS, for what is written back
constexpr time_t kPauseS = 1;          // between attempts to connect
constexpr long kNapNs = 200'000;
constexpr int kNapsMax = 5000;       // 1 s
constexpr int kAttemptsMax = 500;    // to ask a service that closes connections
constexpr rlim_t kNumberMin = 512;   // of our descriptors: programs look behind low limits
constexpr rlim_t kNumberMax = 4096;  // a table of more takes much memory

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
std::atomic<uint32_t> given_back{0};  // counts connections that were; a futex
std::atomic<int> waiting{0};          // threads that wait for one
std::atomic<uint32_t> mapping_count{0};
std::atomic<bool> connecting{false};
std::atomic<time_t> tried{0};
sockaddr_un address;
bool writing = false;
std::atomic<bool> ended{false};  // for good

// A word that the kernel clears in the child of a fork, however that is made, and not in a child of
// vfork, which has this memory.
std::atomic<uint32_t>* own_process = nullptr;

// Begins anew where this process was made by a system call that libc and the wrappers have not
// seen: the parent has the same connections.
void notice_fork() {
    if (own_process != nullptr && own_process->load(std::memory_order_relaxed) == 0) begin_child();
}

// While it lives, no signal handler and no cancellation can leave the calling thread's code here: a
// connection would stay in use for ever, or be given to two threads. A call that SIGSYS stands for
// must still be told.
class Undisturbed {
public:
    Undisturbed() {
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels_);
        const uint64_t all = ~(uint64_t{1} << (SIGSYS - 1));
        kernel::call(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask_, sizeof mask_);
        notice_fork();
    }
    ~Undisturbed() {
        const int error = errno;
        kernel::call(SYS_rt_sigprocmask, SIG_SETMASK, &mask_, nullptr, sizeof mask_);
        pthread_setcancelstate(cancels_, nullptr);
        errno = error;
    }
    Undisturbed(const Undisturbed&) = delete;
    Undisturbed& operator=(const Undisturbed&) = delete;

private:
    uint64_t mask_ = 0;
    int cancels_ = PTHREAD_CANCEL_ENABLE;
};

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

void nap() {
    const timespec time{0, kNapNs};
    nanosleep(&time, nullptr);
}

// Sets the limit of descriptors, or tells it.
bool limit_of_descriptors(const rlimit* set, rlimit* told) {
    return kernel::call(SYS_prlimit64, 0, RLIMIT_NOFILE, set, told) == 0;
}

// Makes a socket whose number is out of the program's way: behind its limit, where that may be
// raised for a moment. So the program has as many descriptors as without it. It is closed at exec.
int make_socket_alone() {
    rlimit limit{}, now{};
    if (!limit_of_descriptors(nullptr, &limit)) return -1;
    constexpr rlim_t kNumbers = 2 * kConnectionsMax;
    const rlim_t behind = limit.rlim_cur > kNumberMin ? limit.rlim_cur : kNumberMin;
    rlimit raised = limit;
    raised.rlim_cur = behind + kNumbers;
    if (raised.rlim_cur > limit.rlim_max) raised.rlim_cur = limit.rlim_max;
    const bool raises = limit.rlim_cur < kNumberMax && raised.rlim_cur > limit.rlim_cur &&
                        limit_of_descriptors(&raised, nullptr);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    rlim_t from = behind < kNumberMax ? behind : kNumberMax;
    const rlim_t most = raises ? raised.rlim_cur : limit.rlim_cur;
    if (most < from + kNumbers) from = most > kNumbers ? most - kNumbers : 0;
    if (fd >= 0 && static_cast<rlim_t>(fd) < from) {
        const int high = kernel::fcntl(fd, F_DUPFD_CLOEXEC, reinterpret_cast<void*>(from));
        if (high >= 0) kernel::close(fd);
        if (high >= 0) fd = high;
    }
    // The program may have set another limit meanwhile.
    if (raises && limit_of_descriptors(nullptr, &now) && now.rlim_cur == raised.rlim_cur)
        limit_of_descriptors(&limit, nullptr);
    return fd;
}

int make_socket() {
    // One thread at a time: another one would take the raised limit for the program's.
    static std::atomic<bool> making{false};
    for (int naps = 0; making.exchange(true) && naps < kNapsMax; ++naps) nap();
    const int fd = make_socket_alone();
    making.store(false);
    return fd;
}

// Returns whether a service of this program's user listens at the other end: another user's could
// share what it likes.
bool is_of_own_user(int fd) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

bool connect_one(Connection& connection) {
    if (ended.load()) return false;
    const int fd = make_socket();
    if (fd < 0) return false;
    const timeval limit{kAnswerS, 0};
    struct stat status;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
        connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        !is_of_own_user(fd) || kernel::fstat(fd, &status) != 0) {
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
                             request.kind == Request::kPass || request.kind == Request::kGrant ||
                             request.kind == Request::kError || request.kind == Request::kTruncate;
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

// Maps a whole file of memory. Other processes cannot see its bytes in a core dump.
bool map_all(int fd, int protection, Shared* shared) {
    struct stat status;
    if (kernel::fstat(fd, &status) != 0) return false;
    shared->size = static_cast<size_t>(status.st_size);
    void* mapped = kernel::mmap(nullptr, shared->size, protection, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return false;
    shared->begin = static_cast<char*>(mapped);
    kernel::call(SYS_madvise, mapped, shared->size, MADV_DONTDUMP);
    return true;
}

void unmap_all(CacheMapping& mapping) {
    for (Shared& part : mapping.shared) {
        if (part.begin != nullptr) kernel::munmap(part.begin, part.size);
        part = {};
    }
}

// Connects to a service, and maps what it shares. If that fails, some of it may be mapped.
bool join(CacheMapping& mapping, Connection& connection) {
    int files[kHelloDescriptors] = {-1, -1, -1};
    CacheReply reply;
    if (!connect_one(connection) ||
        !exchange(connection, {.kind = Request::kHello, .writes = writing ? 1u : 0u}, -1, &reply,
                  files) ||
        reply.error != 0)
        return false;
    auto& [table, arena, marks] = mapping.shared;
    const bool mapped = map_all(files[0], PROT_READ, &table) &&
                        map_all(files[1], writing ? PROT_READ | PROT_WRITE : PROT_READ, &arena) &&
                        map_all(files[2], PROT_READ | PROT_WRITE, &marks);
    for (const int one : files) kernel::close(one);
    if (!mapped || table.size < sizeof(chunk_table::ChunkTableHead)) return false;
    const chunk_table::Table told(table.begin);
    if (!chunk_table::is_whole(told.shape, table.size, arena.size, marks.size)) return false;
    mapping.reader.table = told;
    mapping.reader.marks = chunk_table::Marks(marks.begin, told.shape.file_count,
                                              told.shape.chunk_count);
    mapping.arena = arena.begin;
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
    for (int naps = 0; connecting.load() && naps < kNapsMax; ++naps) nap();
    return joined_cache();
}

// Returns a connection to the service of a mapping that no thread uses; null: there is none now.
Connection* try_connection(uint32_t mapping) {
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

// Returns how many connections are open, or how many of them no thread uses.
int open_connections(bool unused_only) {
    int count = 0;
    for (const Connection& one : connections)
        if (one.fd.load() >= 0 && !(unused_only && one.busy.load())) ++count;
    return count;
}

// Gives a connection back, to a thread that waits for one first.
void give_back(Connection& connection) {
    if (waiting.load() == 0 && open_connections(true) >= kIdleMax) drop(connection);
    connection.busy.store(false);
    if (waiting.load() == 0) return;
    given_back.fetch_add(1);
    kernel::call(SYS_futex, &given_back, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Returns a connection to the service of a mapping, and waits where all are in use, or descriptors
// are short. Each that is in use is given back within kAnswerS or kLongPeriods of it. Null: the
// service has ended, or the time is over.
Connection* take_connection(uint32_t mapping) {
    Connection* found = try_connection(mapping);
    for (int turns = 0; found == nullptr && turns < 2 * kLongPeriods * kAnswerS; ++turns) {
        if (!mappings[mapping].reader.marks.live()) return nullptr;
        if (turns > 2 && open_connections(false) == 0) return nullptr;  // and none can be made
        const uint32_t seen = given_back.load();
        waiting.fetch_add(1);
        found = try_connection(mapping);
        const timespec limit{0, 500'000'000};
        if (found == nullptr)
            kernel::call(SYS_futex, &given_back, FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
        waiting.fetch_sub(1);
    }
    return found;
}

// Ends what a child of vfork has for itself alone of a mapping that it has made. Its parent has the
// mapping too, but not the connection, and is another writer.
void leave_to_parent(CacheMapping& mapping, Connection& connection) {
    mapping.writer.store(0);
    kernel::close(connection.fd.exchange(-1));
}

// Asks as a child of vfork. The service answers no other process on its parent's connections, and
// one that is noted would be taken for the parent's.
bool ask_in_child(const CacheRequest& request, int descriptor, CacheReply* reply) {
    Connection own;
    const bool answered = connect_one(own) && exchange(own, request, descriptor, reply, nullptr);
    // What it holds it holds while it is connected: until it starts a program, or ends.
    const bool holds = request.kind == Request::kPass &&
                       request.writes == cache_protocol::kPassHeld;
    if (!holds) kernel::close(own.fd.load());
    return answered;
}

}  // namespace

bool set_cache_socket(const char* path, size_t size, bool writes) {
    writing = writes;
    constexpr int kWipeOnFork = 18;  // MADV_WIPEONFORK of Linux 4.14
    void* page = kernel::mmap(nullptr, sizeof *own_process, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED &&
        kernel::call(SYS_madvise, page, sizeof *own_process, kWipeOnFork) == 0)
        own_process = static_cast<std::atomic<uint32_t>*>(page);
    if (own_process != nullptr) own_process->store(1);
    if (size == 0 || size >= sizeof address.sun_path) return false;
    address.sun_family = AF_UNIX;
    memcpy(address.sun_path, path, size);
    return true;
}

const CacheMapping* cache_by_number(uint32_t number) { return &mappings[number]; }

uint64_t last_error_number() {
    const CacheMapping* last = last_mapping();
    return last == nullptr ? 0 : last->reader.table.head->error_count.load();
}

const CacheMapping* current_cache() {
    if (ended.load(std::memory_order_relaxed)) return nullptr;
    if (const CacheMapping* joined = joined_cache(); joined != nullptr) return joined;
    const Undisturbed undisturbed;
    if (connecting.exchange(true)) return mapping_of_other_thread();
    const CacheMapping* other = joined_cache();  // another thread may just have connected
    if (other != nullptr || now() < tried.load() + kPauseS) {
        connecting.store(false);
        return other;
    }
    tried.store(now());
    const uint32_t count = mapping_count.load();
    Connection* connection = nullptr;
    const bool is_own = !is_child_of_vfork();
    for (Connection& one : connections) {
        if (connection != nullptr || (!is_own && one.fd.load() >= 0)) continue;
        if (!one.busy.exchange(true)) connection = &one;
    }
    bool joined = false;
    if (connection != nullptr && count < kMappingsMax) {
        if (is_own) drop(*connection);
        connection->mapping = count;
        mappings[count].number = count;
        joined = join(mappings[count], *connection);
        if (!joined) unmap_all(mappings[count]);
        if (!joined && is_own) drop(*connection);
        if (!is_own) leave_to_parent(mappings[count], *connection);
    }
    if (connection != nullptr) give_back(*connection);
    if (joined) mapping_count.store(count + 1, std::memory_order_release);
    connecting.store(false);
    return joined ? &mappings[count] : nullptr;
}

bool ask_cache(const CacheMapping& cache, CacheRequest request, int descriptor, CacheReply* reply) {
    const Undisturbed undisturbed;
    *reply = {};
    if (is_child_of_vfork()) return ask_in_child(request, descriptor, reply);
    // The program may have closed the connection, or the service, which has only so many.
    for (int attempts = 0; attempts < kAttemptsMax && cache.reader.marks.live(); ++attempts) {
        if (attempts > 1) nap();
        Connection* connection = take_connection(cache.number);
        if (connection == nullptr) return false;
        const int fd = connection->fd.load();
        const bool ours = fd >= 0 && is_ours(*connection, fd);
        if (!ours) connection->fd.store(-1);
        errno = 0;
        const bool answered = ours && exchange(*connection, request, descriptor, reply, nullptr);
        const bool timed_out = ours && !answered && errno == EAGAIN;
        if (!answered) drop(*connection);  // a late answer must not be taken for another
        give_back(*connection);
        if (answered || timed_out) return answered;
    }
    return false;
}

void tell_cache(const CacheMapping& cache, const CacheRequest& request, bool waits) {
    const Undisturbed undisturbed;
    if (is_child_of_vfork()) return;  // what it holds is released with its connection
    Connection* connection = waits ? take_connection(cache.number) : try_connection(cache.number);
    if (connection == nullptr) return;
    const int fd = connection->fd.load();
    if (fd >= 0 && is_ours(*connection, fd))
        kernel::call(SYS_sendto, fd, &request, sizeof request,
                     MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT), nullptr, 0);
    give_back(*connection);
}

uint32_t writer_number(const CacheMapping& cache) {
    const uint32_t known = cache.writer.load(std::memory_order_relaxed);
    if (known != 0) return known;
    const Undisturbed undisturbed;
    if (is_child_of_vfork()) return 0;
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
    give_back(*connection);
    if (!answered || reply.error != 0) return 0;
    mappings[cache.number].writer.store(reply.slot);
    return reply.slot;
}

void forget_connections() {
    if (own_process != nullptr) own_process->store(1);
    for (CacheMapping& one : mappings) one.writer.store(0);
    for (Connection& one : connections) {
        drop(one);
        one.busy.store(false);
    }
    waiting.store(0);
    connecting.store(false);
    tried.store(0);
}

void end_connections() {
    const Undisturbed undisturbed;
    ended.store(true);
    for (Connection& one : connections) drop(one);
    // The table goes first: a copy out of the arena counts only if the table is as before it.
    for (CacheMapping& one : mappings)
        for (const Shared& part : one.shared)
            if (part.begin != nullptr)
                kernel::mmap(part.begin, part.size, PROT_READ | PROT_WRITE,
                             MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

}  // namespace penstock::preload
