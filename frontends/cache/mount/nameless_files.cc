#include "nameless_files.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <string>

namespace penstock::cache_service {

#if FUSE_VERSION >= FUSE_MAKE_VERSION(3, 13)
namespace {

ssize_t read_request(int device, void* to, size_t size, void* /*all*/) {
    const ssize_t got = read(device, to, size);
    auto* const head = static_cast<fuse_in_header*>(to);
    if (got >= static_cast<ssize_t>(sizeof *head) && head->opcode == FUSE_TMPFILE)
        head->opcode = FUSE_CREATE;
    return got;
}

ssize_t write_answer(int device, iovec* pieces, int count, void* /*all*/) {
    return writev(device, pieces, count);
}

}  // namespace

void take_nameless_requests(fuse_session* session) {
    fuse_custom_io calls{};
    calls.read = read_request;
    calls.writev = write_answer;
    (void)fuse_session_custom_io(session, &calls, fuse_session_fd(session));
}
#else
void take_nameless_requests(fuse_session* /*session*/) {}
#endif

bool enter_nameless(fuse_req_t request, int descriptor, fuse_entry_param* entry) {
    Served& all = served(request);
    *entry = {};
    const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
    const Below below = Below::take(open(path.c_str(), O_PATH | O_CLOEXEC));
    Node* const node = below ? all.nodes.enter_nameless(below, &entry->attr) : nullptr;
    if (node == nullptr) return false;
    set_shown_number(all, &entry->attr);
    node->has_set_id = (entry->attr.st_mode & (S_ISUID | S_ISGID)) != 0;
    entry->ino = all.nodes.number_of(*node);
    entry->attr_timeout = entry->entry_timeout = kAttributesValid_s;
    return true;
}

}  // namespace penstock::cache_service
