// Requests that list folders.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "hidden.h"
#include "served.h"

namespace penstock::cache_service {
namespace {

// An open folder. The kernel may list it from several threads at once.
struct OpenFolder : Handle {
    DIR* stream = nullptr;
    std::mutex mutex;
    off_t at = 0;                    // the position of `stream`
    const dirent* unsent = nullptr;  // read from `stream`, and there was no room for it

    std::shared_ptr<const void> counted;  // by HandleLimit

    ~OpenFolder() override {
        if (stream != nullptr) closedir(stream);
    }
};

OpenFolder& folder_of(const fuse_file_info* file) {
    return *reinterpret_cast<OpenFolder*>(file->fh);
}

// Returns null with errno set.
DIR* open_stream(Served* all, const Below& below) {
    return with_descriptors(all, [&]() -> DIR* {
        constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
        const int descriptor = open_quietly(*all, below.get(), ".", kFlags);
        if (descriptor < 0) return nullptr;
        DIR* const stream = fdopendir(descriptor);
        if (stream == nullptr) {
            const int error = errno;
            close(descriptor);
            errno = error;
        }
        return stream;
    });
}

void serve_opendir(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
    Node& node = node_of(request, number);
    auto folder = std::make_shared<OpenFolder>();
    folder->counted = count_handle(request);
    const Below below = folder->counted == nullptr ? Below() : open_node(request, node);
    folder->stream = below ? open_stream(&served(request), below) : nullptr;
    if (folder->stream == nullptr) {
        fuse_reply_err(request, errno);
        return;
    }
    folder->descriptor = dirfd(folder->stream);
    Nodes& nodes = served(request).nodes;
    nodes.add_handle(node, folder);
    file->fh = reinterpret_cast<uint64_t>(folder.get());
    if (fuse_reply_open(request, file) != 0) nodes.remove_handle(node, *folder);
}

void serve_releasedir(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
    served(request).nodes.remove_handle(node_of(request, number), folder_of(file));
    fuse_reply_err(request, 0);
}

void serve_fsyncdir(fuse_req_t request, fuse_ino_t /*number*/, int data_only,
                    fuse_file_info* file) {
    const int descriptor = dirfd(folder_of(file).stream);
    reply_result(request, (data_only != 0 ? fdatasync(descriptor) : fsync(descriptor)) == 0);
}

// Adds one entry to an answer. Returns its size; more than `room`: it has none.
size_t add_entry(fuse_req_t request, fuse_ino_t number, const dirent& found, bool attributes,
                 char* to, size_t room, int* error) {
    const bool dots = std::strcmp(found.d_name, ".") == 0 || std::strcmp(found.d_name, "..") == 0;
    fuse_entry_param entry{};
    if (is_hidden(number, found.d_name)) return 0;
    if (attributes && !dots) {
        if (!look_up(request, number, found.d_name, &entry)) {
            if (errno != ENOENT) *error = errno;
            return 0;  // it was removed meanwhile
        }
    } else {
        const Served& all = served(request);
        const dev_t device = number == FUSE_ROOT_ID ? all.device
                                                    : node_of(request, number).identity.device;
        entry.attr.st_ino = shown_number(all.device, device, found.d_ino);
        entry.attr.st_mode = static_cast<mode_t>(found.d_type) << 12;
    }
    const size_t size = attributes ? fuse_add_direntry_plus(request, to, room, found.d_name, &entry,
                                                            found.d_off)
                                   : fuse_add_direntry(request, to, room, found.d_name, &entry.attr,
                                                       found.d_off);
    if (size > room && entry.ino != 0) served(request).nodes.forget(node_of(request, entry.ino), 1);
    return size;
}

// Fills an answer with entries from `offset` on, as many as it has room for. Returns how many bytes
// it has; 0: the end, or an error.
size_t fill(fuse_req_t request, fuse_ino_t number, OpenFolder& folder, off_t offset,
            bool attributes, std::vector<char>* to, int* failed) {
    const std::lock_guard lock(folder.mutex);
    if (offset != folder.at) {
        seekdir(folder.stream, offset);
        folder.at = offset;
        folder.unsent = nullptr;
    }
    std::vector<char>& answer = *to;
    const size_t room = answer.size();
    size_t filled = 0;
    int error = 0;
    for (;;) {
        if (folder.unsent == nullptr) {
            errno = 0;
            folder.unsent = readdir(folder.stream);
            if (folder.unsent == nullptr) {
                error = errno;
                break;
            }
        }
        const size_t size = add_entry(request, number, *folder.unsent, attributes,
                                      answer.data() + filled, room - filled, &error);
        if (error != 0 || size > room - filled) break;
        filled += size;
        folder.at = folder.unsent->d_off;
        folder.unsent = nullptr;
    }
    // Entries that are in the answer count as looked up, so they are sent in any case.
    *failed = filled == 0 ? error : 0;
    return filled;
}

// Once it has the answer, the kernel may close the folder.
void list(fuse_req_t request, fuse_ino_t number, size_t room, off_t offset,
          const fuse_file_info* file, bool attributes) {
    std::vector<char> answer(room);
    int error = 0;
    const size_t filled = fill(request, number, folder_of(file), offset, attributes, &answer,
                               &error);
    if (error != 0) {
        fuse_reply_err(request, error);
    } else {
        fuse_reply_buf(request, answer.data(), filled);
    }
}

void serve_readdir(fuse_req_t request, fuse_ino_t number, size_t room, off_t offset,
                   fuse_file_info* file) {
    list(request, number, room, offset, file, false);
}
void serve_readdirplus(fuse_req_t request, fuse_ino_t number, size_t room, off_t offset,
                       fuse_file_info* file) {
    list(request, number, room, offset, file, true);
}

}  // namespace

void add_folder_functions(fuse_lowlevel_ops* functions) {
    functions->opendir = serve_opendir;
    functions->releasedir = serve_releasedir;
    functions->fsyncdir = serve_fsyncdir;
    functions->readdir = serve_readdir;
    functions->readdirplus = serve_readdirplus;
}

}  // namespace penstock::cache_service
