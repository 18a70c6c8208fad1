#include "clients.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace penstock::cache_service {
namespace {

using cache_protocol::CacheReply;
using cache_protocol::CacheRequest;
using cache_protocol::kHelloDescriptors;
using cache_protocol::Request;

constexpr size_t kConnectionsMax = 4096;

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

// Receives a request, and a descriptor if one comes with it. Returns false at the end.
bool receive(int connection, CacheRequest* request, int* descriptor) {
    iovec piece{request, sizeof *request};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ssize_t got = 0;
    do {
        got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    *descriptor = -1;
    const cmsghdr* head = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
    if (head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int)))
        std::memcpy(descriptor, CMSG_DATA(head), sizeof(int));
    return got == sizeof *request;
}

bool is_of_this_user(int connection) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
           credentials.uid == geteuid();
}

// Opens a file of memory once more, for reading alone.
int read_only(int descriptor) {
    return open(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

Result<std::unique_ptr<Clients>> Clients::listen(
    const std::string& path, FileCache cache,
    std::function<std::string(const ReadFiles&)> statistics, std::function<void()> stop) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
        return Status{ENAMETOOLONG, "socket", "its path is longer than sockets may have"};
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    std::unique_ptr<Clients> made(new Clients(std::move(cache)));
    made->statistics_ = std::move(statistics);
    made->stop_ = std::move(stop);
    made->path_ = path;
    made->listener_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    made->wake_ = eventfd(0, EFD_CLOEXEC);
    unlink(path.c_str());  // of a service that was killed
    const mode_t old = umask(0177);
    const bool bound = made->listener_ >= 0 && made->wake_ >= 0 &&
                       bind(made->listener_, reinterpret_cast<const sockaddr*>(&address),
                            sizeof address) == 0 &&
                       ::listen(made->listener_, 1024) == 0;
    umask(old);
    if (!bound) return Status{errno, "socket", "the service cannot listen on it"};
    made->thread_ = std::thread([self = made.get()] { self->accept_all(); });
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
    changed_.wait(lock, [this] { return connections_.empty(); });
    lock.unlock();
    if (listener_ >= 0) close(listener_);
    if (wake_ >= 0) close(wake_);
}

void Clients::accept_all() {
    for (;;) {
        pollfd waits[2] = {{listener_, POLLIN, 0}, {wake_, POLLIN, 0}};
        if (poll(waits, 2, -1) < 0 && errno != EINTR) return;
        if (waits[1].revents != 0) return;
        const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
        if (connection < 0) {
            // Out of descriptors: the program that waits is served when others have ended.
            if (errno == EMFILE || errno == ENFILE) usleep(10'000);
            continue;
        }
        const std::lock_guard lock(mutex_);
        if (!is_of_this_user(connection) || connections_.size() >= kConnectionsMax) {
            close(connection);
            continue;
        }
        connections_.push_back(connection);
        std::thread([this, connection] { serve(connection); }).detach();
    }
}

void Clients::serve(int connection) {
    CacheRequest request{};
    int descriptor = -1;
    while (receive(connection, &request, &descriptor)) {
        answer(connection, request, descriptor);
        if (descriptor >= 0) close(descriptor);
    }
    const std::lock_guard lock(mutex_);
    connections_.remove(connection);
    close(connection);
    changed_.notify_all();
}

void Clients::answer(int connection, const CacheRequest& request, int descriptor) {
    CacheReply reply{};
    reply.error = request.version == cache_protocol::kVersion ? 0 : EPROTO;
    if (reply.error == 0) {
        switch (request.kind) {
            case Request::kHello: {
                const SharedFileCache shared = cache_.shared();
                const int sent[kHelloDescriptors] = {read_only(shared.table),
                                                     read_only(shared.arena), shared.marks};
                send(connection, &reply, sizeof reply, sent);
                for (const int one : {sent[0], sent[1]})
                    if (one >= 0) close(one);
                return;
            }
            case Request::kOpen:
                reply = descriptor < 0 ? CacheReply{.error = EBADF} : files_.open(descriptor);
                break;
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
            default:
                reply.error = EPROTO;
        }
    }
    send(connection, &reply, sizeof reply);
}

}  // namespace penstock::cache_service
