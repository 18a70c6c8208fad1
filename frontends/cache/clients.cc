#include "clients.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "penstock/abi/chunk_table.h"

namespace penstock::cache_service {
namespace {

using cache_protocol::CacheReply;
using cache_protocol::CacheRequest;
using cache_protocol::kHelloDescriptors;
using cache_protocol::Request;

constexpr size_t kConnectionsMax = 4096;
constexpr std::chrono::milliseconds kSweepPeriod{1000};

// Sends a reply, and descriptors with it. The program may be gone: that is seen at the next
// request.
void send(int connection, const void* bytes, size_t size, const int* descriptors = nullptr) {
    iovec piece{const_cast<void*>(bytes), size};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kHelloDescriptors)> control{};
    if (descriptors != nullptr) {
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr* head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int) * kHelloDescriptors);
        std::memcpy(CMSG_DATA(head), descriptors, sizeof(int) * kHelloDescriptors);
    }
    (void)sendmsg(connection, &message, MSG_NOSIGNAL);
}

// What came with a request: the process and user that sent it, as the kernel says, and descriptors,
// which are closed.
struct Attached {
    ucred sender{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = 0};
    std::vector<int> descriptors;

    Attached() = default;
    ~Attached() {
        for (const int one : descriptors) close(one);
    }
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;
};

// Receives a request of the process at the other end, with up to one descriptor. Returns false at
// the end, and for anything else: a connection that another process or user has inherited is of no
// use to it.
bool receive(int connection, const ucred& peer, CacheRequest* request, Attached* attached) {
    constexpr size_t kDescriptorsMax = 253;  // that the kernel sends at once
    iovec piece{request, sizeof *request};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr)
        std::array<char, CMSG_SPACE(sizeof(int) * kDescriptorsMax) + CMSG_SPACE(sizeof(ucred))>
            control;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ssize_t got = 0;
    do {
        got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got <= 0) return false;
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
         head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET) continue;
        const size_t size = head->cmsg_len - CMSG_LEN(0);
        if (head->cmsg_type == SCM_CREDENTIALS && size == sizeof(ucred))
            std::memcpy(&attached->sender, CMSG_DATA(head), size);
        if (head->cmsg_type != SCM_RIGHTS) continue;
        attached->descriptors.resize(size / sizeof(int));
        std::memcpy(attached->descriptors.data(), CMSG_DATA(head), size);
    }
    return got == sizeof *request && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
           attached->descriptors.size() <= 1 && attached->sender.pid == peer.pid &&
           attached->sender.uid == peer.uid;
}

ucred peer_of(int connection) {
    ucred credentials{.pid = 0, .uid = static_cast<uid_t>(-1), .gid = 0};
    socklen_t size = sizeof credentials;
    (void)getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
    return credentials;
}

bool has_ended(int process) {
    pollfd end{process, POLLIN, 0};
    return poll(&end, 1, 0) == 1;
}

CacheReply reply_of(const Result<uint64_t>& size) {
    CacheReply reply{};
    reply.error = size.status().error_number();
    reply.size = size.ok() ? size.value() : 0;
    return reply;
}

// Opens a file of memory once more, for reading alone.
int read_only(int descriptor) {
    return open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

Result<std::unique_ptr<Clients>> Clients::listen(
    const std::string& path, const std::string& folder, FileCache cache,
    std::function<std::string(const ReadFiles&)> statistics, std::function<void()> stop) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return Status{ENAMETOOLONG, "socket", "its path is longer than sockets may have"};
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    std::unique_ptr<Clients> made(new Clients(folder, std::move(cache)));
    made->statistics_ = std::move(statistics);
    made->stop_ = std::move(stop);
    made->path_ = path;
    made->listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    made->wake_ = eventfd(0, EFD_CLOEXEC);
    unlink(path.c_str());  // of a service that was killed
    const mode_t old = umask(0177);
    // Connections have it from the socket that listens: a program may send before it is accepted.
    const int one = 1;
    const bool bound = made->listener_ >= 0 && made->wake_ >= 0 &&
                       setsockopt(made->listener_, SOL_SOCKET, SO_PASSCRED, &one, sizeof one) ==
                           0 &&
                       bind(made->listener_, reinterpret_cast<const sockaddr*>(&address),
                            sizeof address) == 0 &&
                       ::listen(made->listener_, 1024) == 0;
    umask(old);
    if (!bound) return Status{errno, "socket", "the service cannot listen on it"};
    made->thread_ = std::thread([self = made.get()] { self->accept_all(); });
    made->sweeper_ = std::thread([self = made.get()] { self->sweep_files(); });
    return made;
}

Clients::~Clients() {
    if (thread_.joinable()) {
        const uint64_t one = 1;
        (void)!write(wake_, &one, sizeof one);
        thread_.join();
        unlink(path_.c_str());
    }
    std::unique_lock lock(mutex_);
    stopping_ = true;
    for (const int connection : connections_) shutdown(connection, SHUT_RDWR);
    changed_.notify_all();
    changed_.wait(lock, [this] { return connections_.empty(); });
    lock.unlock();
    if (sweeper_.joinable()) sweeper_.join();
    if (listener_ >= 0) close(listener_);
    if (wake_ >= 0) close(wake_);
}

void Clients::accept_all() {
    for (;;) {
        pollfd waits[2] = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
        if (poll(waits, 2, static_cast<int>(kSweepPeriod.count())) < 0 && errno != EINTR) return;
        sweep_writers();
        if (waits[1].revents != 0) return;
        if (waits[0].revents == 0) continue;
        const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (connection < 0) {
            // Out of descriptors: the program that waits is served when others have ended.
            if (errno == EMFILE || errno == ENFILE) usleep(10'000);
            continue;
        }
        const std::lock_guard lock(mutex_);
        if (peer_of(connection).uid != geteuid() || connections_.size() >= kConnectionsMax) {
            close(connection);
            continue;
        }
        connections_.push_back(connection);
        ++writers_[peer_of(connection).pid].connections;
        std::thread([this, connection] { serve(connection); }).detach();
    }
}

void Clients::serve(int connection) {
    const ucred peer = peer_of(connection);
    for (;;) {
        CacheRequest request{};
        Attached attached;
        if (!receive(connection, peer, &request, &attached)) break;
        answer(connection, request,
               attached.descriptors.empty() ? -1 : attached.descriptors.front());
    }
    const std::lock_guard lock(mutex_);
    remove_writer(peer.pid);
    connections_.remove(connection);
    close(connection);
    changed_.notify_all();
}

// Returns the number of a program in grants.
uint32_t Clients::add_writer(int connection) {
    const std::lock_guard lock(mutex_);
    const int process = peer_of(connection).pid;
    Writer& writer = writers_[process];
    if (writer.number != 0) return writer.number;
    writer.number = writer_count_ = writer_count_ % (chunk_table::grant::kWritersMax - 1) + 1;
    writer.process = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
    return writer.number;
}

// Ends one connection of a program. It may still be in a copy, or come back.
void Clients::remove_writer(int process) {
    const auto found = writers_.find(process);
    if (found != writers_.end()) --found->second.connections;
}

// Forgets programs that have ended.
void Clients::sweep_writers() {
    const std::lock_guard lock(mutex_);
    std::erase_if(writers_, [this](const auto& each) {
        const Writer& writer = each.second;
        if (writer.connections > 0) return false;
        if (writer.process >= 0 && !has_ended(writer.process)) return false;
        if (writer.process >= 0) close(writer.process);
        files_.release(each.first);
        if (writer.number != 0) cache_.forget_writer(writer.number);
        return true;
    });
}

// Closes files without a name. It has a thread of its own, because storage may take its time:
// programs that connect do not wait for it.
void Clients::sweep_files() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kSweepPeriod, [this] { return stopping_; })) {
        lock.unlock();
        files_.close_unneeded();
        lock.lock();
    }
}

void Clients::answer(int connection, const CacheRequest& request, int descriptor) {
    CacheReply reply{};
    reply.error = request.version == cache_protocol::kVersion ? 0 : EPROTO;
    if (reply.error == 0) {
        switch (request.kind) {
            case Request::kHello: {
                const SharedFileCache shared = cache_.shared();
                const int table = read_only(shared.table), arena = read_only(shared.arena);
                const bool writes = request.writes != 0;
                const int sent[kHelloDescriptors] = {table, writes ? shared.arena : arena,
                                                     shared.marks};
                reply.slot = add_writer(connection);
                send(connection, &reply, sizeof reply, sent);
                for (const int one : {table, arena})
                    if (one >= 0) close(one);
                return;
            }
            case Request::kOpen:
                reply = descriptor < 0 ? CacheReply{.error = EBADF}
                                       : files_.open(descriptor, request.writes);
                break;
            case Request::kDrop:
                reply = descriptor < 0 ? CacheReply{.error = EBADF} : files_.drop_bytes(descriptor);
                break;
            case Request::kUsed:
                files_.used(request);
                return;
            case Request::kFetch:
                reply = files_.fetch(request);
                break;
            case Request::kStatistics: {
                const std::string text = statistics_(files_);
                send(connection, text.data(), text.size());
                return;
            }
            case Request::kStop:
                stop_();
                break;
            case Request::kGrant:
            case Request::kSync:
            case Request::kFlush:
            case Request::kPass:
            case Request::kClose:
            case Request::kError:
            case Request::kTruncate:
                reply = files_.change(request, peer_of(connection).pid);
                break;
            case Request::kRelease:
                (void)files_.change(request, peer_of(connection).pid);
                return;
            case Request::kGiveBack:
                reply = reply_of(cache_.give_back(request.size));
                break;
            case Request::kGrow:
                reply = reply_of(cache_.grow(request.size));
                break;
            default:
                reply.error = EPROTO;
        }
    }
    send(connection, &reply, sizeof reply);
}

}  // namespace penstock::cache_service
