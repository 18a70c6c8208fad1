// See calls.h. Nothing is cached by time: names and attributes may be others after a loss of power.
#include "forgetful_file_system/calls.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>
#include <vector>

namespace penstock::forgetful {
namespace {

constexpr uint32_t kWriteSizeMax = 1 << 20;

// What an open folder lists: its entries when it was opened.
using Listing = std::vector<std::pair<std::string, struct stat>>;

Mounted& mounted(fuse_req_t request) { return *static_cast<Mounted*>(fuse_req_userdata(request)); }

// Returns the node of a number; answers ESTALE and returns none if there is no such node, and
// another error if the disk does not answer.
NodePointer find(fuse_req_t request, fuse_ino_t number) {
    const auto& known = mounted(request).known;
    const auto found = known.find(number);
    const int refusal = mounted(request).disk.refusal();
    if (found != known.end() && refusal == 0) return found->second;
    fuse_reply_err(request, refusal != 0 ? -refusal : ESTALE);
    return nullptr;
}

fuse_entry_param entry_of(fuse_req_t request, const NodePointer& node) {
    mounted(request).known[node->status.st_ino] = node;
    ++node->lookups;
    fuse_entry_param entry{};
    entry.ino = node->status.st_ino;
    entry.attr = attributes_of(*node);
    return entry;
}

void answer_entry(fuse_req_t request, int result, const NodePointer& node) {
    if (result < 0) {
        fuse_reply_err(request, -result);
        return;
    }
    const fuse_entry_param entry = entry_of(request, node);
    fuse_reply_entry(request, &entry);
}

struct stat status_of(fuse_req_t request, mode_t mode) {
    struct stat status {};
    status.st_mode = mode;
    status.st_uid = fuse_req_ctx(request)->uid;
    status.st_gid = fuse_req_ctx(request)->gid;
    status.st_blksize = kPageSize;
    return status;
}

void begin(void* /*mounted*/, fuse_conn_info* connection) {
    // The kernel truncates by a call of its own before it opens with O_TRUNC.
    connection->want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA | FUSE_CAP_ATOMIC_O_TRUNC);
    connection->max_write = kWriteSizeMax;
}

void lookup(fuse_req_t request, fuse_ino_t parent, const char* name) {
    const NodePointer folder = find(request, parent);
    if (folder == nullptr) return;
    const auto found = folder->entries.find(name);
    if (found == folder->entries.end())
        fuse_reply_err(request, ENOENT);
    else
        answer_entry(request, 0, found->second);
}

void forget(fuse_req_t request, fuse_ino_t number, uint64_t lookups) {
    auto& known = mounted(request).known;
    const auto found = known.find(number);
    if (found != known.end() && number != FUSE_ROOT_ID) {
        found->second->lookups -= std::min(found->second->lookups, lookups);
        if (found->second->lookups == 0) known.erase(found);
    }
    fuse_reply_none(request);
}

void get_attributes(fuse_req_t request, fuse_ino_t number, fuse_file_info* /*file*/) {
    const NodePointer node = find(request, number);
    if (node == nullptr) return;
    const struct stat status = attributes_of(*node);
    fuse_reply_attr(request, &status, 0);
}

void set_times(Node& node, const struct stat& to, int what) {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    if ((what & FUSE_SET_ATTR_ATIME) != 0) node.status.st_atim = to.st_atim;
    if ((what & FUSE_SET_ATTR_MTIME) != 0) node.status.st_mtim = to.st_mtim;
    if ((what & FUSE_SET_ATTR_ATIME_NOW) != 0) node.status.st_atim = now;
    if ((what & FUSE_SET_ATTR_MTIME_NOW) != 0) node.status.st_mtim = now;
}

void set_attributes(fuse_req_t request, fuse_ino_t number, struct stat* to, int what,
                    fuse_file_info* /*file*/) {
    const NodePointer node = find(request, number);
    if (node == nullptr) return;
    if (const int error = mounted(request).disk.refusal_to_change(false); error < 0) {
        fuse_reply_err(request, -error);
        return;
    }
    if ((what & FUSE_SET_ATTR_SIZE) != 0) {
        const auto size = static_cast<uint64_t>(to->st_size);
        if (const int result = mounted(request).disk.truncate(node, size); result < 0) {
            fuse_reply_err(request, -result);
            return;
        }
    }
    if ((what & FUSE_SET_ATTR_MODE) != 0)
        node->status.st_mode = (node->status.st_mode & S_IFMT) | (to->st_mode & 07777);
    if ((what & FUSE_SET_ATTR_UID) != 0) node->status.st_uid = to->st_uid;
    if ((what & FUSE_SET_ATTR_GID) != 0) node->status.st_gid = to->st_gid;
    touch(*node, false);
    set_times(*node, *to, what);
    const struct stat status = attributes_of(*node);
    fuse_reply_attr(request, &status, 0);
}

void read_link(fuse_req_t request, fuse_ino_t number) {
    if (const NodePointer node = find(request, number))
        fuse_reply_readlink(request, node->bytes.c_str());
}

// ---- Names

void make(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
          const char* target) {
    const NodePointer folder = find(request, parent);
    if (folder == nullptr) return;
    NodePointer made;
    const int result = mounted(request).disk.make(*folder, name, status_of(request, mode), target,
                                                  &made);
    answer_entry(request, result, made);
}

void make_folder(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode) {
    make(request, parent, name, mode | S_IFDIR, "");
}

void make_node(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
               dev_t /*device*/) {
    if (S_ISREG(mode))
        make(request, parent, name, mode, "");
    else
        fuse_reply_err(request, EPERM);
}

void make_symbolic_link(fuse_req_t request, const char* target, fuse_ino_t parent,
                        const char* name) {
    make(request, parent, name, S_IFLNK | 0777, target);
}

void create(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
            fuse_file_info* file) {
    const NodePointer folder = find(request, parent);
    if (folder == nullptr) return;
    NodePointer made;
    const int result = mounted(request).disk.make(*folder, name, status_of(request, mode | S_IFREG),
                                                  "", &made);
    if (result < 0) {
        fuse_reply_err(request, -result);
        return;
    }
    const fuse_entry_param entry = entry_of(request, made);
    fuse_reply_create(request, &entry, file);
}

void remove_file(fuse_req_t request, fuse_ino_t parent, const char* name) {
    if (const NodePointer folder = find(request, parent))
        fuse_reply_err(request, -mounted(request).disk.remove(*folder, name, false));
}

void remove_folder(fuse_req_t request, fuse_ino_t parent, const char* name) {
    if (const NodePointer folder = find(request, parent))
        fuse_reply_err(request, -mounted(request).disk.remove(*folder, name, true));
}

void rename_entry(fuse_req_t request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
                  const char* new_name, unsigned flags) {
    const NodePointer from = find(request, parent);
    const NodePointer to = from != nullptr ? find(request, new_parent) : nullptr;
    if (to == nullptr) return;
    if ((flags & ~static_cast<unsigned>(RENAME_NOREPLACE)) != 0) {
        fuse_reply_err(request, EINVAL);
        return;
    }
    const bool replace = flags == 0;
    fuse_reply_err(request, -mounted(request).disk.rename(*from, name, *to, new_name, replace));
}

void link_entry(fuse_req_t request, fuse_ino_t number, fuse_ino_t new_parent,
                const char* new_name) {
    const NodePointer node = find(request, number);
    const NodePointer folder = node != nullptr ? find(request, new_parent) : nullptr;
    if (folder == nullptr) return;
    answer_entry(request, mounted(request).disk.link(node, *folder, new_name), node);
}

// ---- Folders

void open_folder(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
    const NodePointer folder = find(request, number);
    if (folder == nullptr) return;
    auto* listing = new Listing{{".", folder->status}, {"..", folder->status}};
    for (const auto& [name, node] : folder->entries)
        listing->emplace_back(name, attributes_of(*node));
    file->fh = reinterpret_cast<uint64_t>(listing);
    fuse_reply_open(request, file);
}

void read_folder(fuse_req_t request, fuse_ino_t /*number*/, size_t size, off_t offset,
                 fuse_file_info* file) {
    const auto& listing = *reinterpret_cast<const Listing*>(file->fh);
    std::vector<char> to(size);
    size_t used = 0;
    for (auto i = static_cast<size_t>(offset); i < listing.size(); ++i) {
        const auto& [name, status] = listing[i];
        const size_t needed = fuse_add_direntry(request, to.data() + used, size - used,
                                                name.c_str(), &status, static_cast<off_t>(i + 1));
        if (needed > size - used) break;
        used += needed;
    }
    fuse_reply_buf(request, to.data(), used);
}

void release_folder(fuse_req_t request, fuse_ino_t /*number*/, fuse_file_info* file) {
    delete reinterpret_cast<Listing*>(file->fh);
    fuse_reply_err(request, 0);
}

void sync_node(fuse_req_t request, fuse_ino_t number, int /*data_only*/, fuse_file_info* /*file*/) {
    const NodePointer node = find(request, number);
    if (node == nullptr) return;
    fuse_reply_err(request, -mounted(request).disk.sync(node));
}

// ---- Files

void open_file(fuse_req_t request, fuse_ino_t number, fuse_file_info* file) {
    if (find(request, number) == nullptr) return;
    file->keep_cache = 1;  // each byte that changes goes through this mount
    fuse_reply_open(request, file);
}

void read_file(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
               fuse_file_info* /*file*/) {
    const NodePointer node = find(request, number);
    if (node == nullptr) return;
    std::string bytes;
    (void)mounted(request).disk.read(*node, static_cast<uint64_t>(offset), size, &bytes);
    fuse_reply_buf(request, bytes.data(), bytes.size());
}

void write_file(fuse_req_t request, fuse_ino_t number, const char* bytes, size_t size, off_t offset,
                fuse_file_info* /*file*/) {
    const NodePointer node = find(request, number);
    if (node == nullptr) return;
    const int result = mounted(request).disk.write(node, static_cast<uint64_t>(offset),
                                                   std::string(bytes, size));
    if (result < 0)
        fuse_reply_err(request, -result);
    else
        fuse_reply_write(request, size);
}

int punch(Disk& disk, const NodePointer& node, uint64_t offset, uint64_t size) {
    const auto end = static_cast<uint64_t>(node->status.st_size);
    if (offset >= end) return 0;
    return disk.write(node, offset, std::string(std::min(size, end - offset), '\0'));
}

void allocate(fuse_req_t request, fuse_ino_t number, int mode, off_t offset, off_t size,
              fuse_file_info* /*file*/) {
    const NodePointer node = find(request, number);
    if (node == nullptr) return;
    Disk& disk = mounted(request).disk;
    const auto begin = static_cast<uint64_t>(offset), length = static_cast<uint64_t>(size);
    int result = 0;
    if (mode == (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE))
        result = punch(disk, node, begin, length);
    else if (mode == 0 && begin + length > static_cast<uint64_t>(node->status.st_size))
        result = disk.truncate(node, begin + length);
    else if (mode != 0 && mode != FALLOC_FL_KEEP_SIZE)
        result = -EOPNOTSUPP;
    fuse_reply_err(request, -result);
}

void file_system_status(fuse_req_t request, fuse_ino_t /*number*/) {
    struct statvfs status {};
    status.f_bsize = status.f_frsize = kPageSize;
    status.f_blocks = status.f_bfree = status.f_bavail = kFileSizeMax / kPageSize;
    status.f_namemax = 255;
    fuse_reply_statfs(request, &status);
}

}  // namespace

fuse_lowlevel_ops calls() {
    fuse_lowlevel_ops all{};
    all.init = begin;
    all.lookup = lookup;
    all.forget = forget;
    all.getattr = get_attributes;
    all.setattr = set_attributes;
    all.readlink = read_link;
    all.mknod = make_node;
    all.mkdir = make_folder;
    all.symlink = make_symbolic_link;
    all.create = create;
    all.unlink = remove_file;
    all.rmdir = remove_folder;
    all.rename = rename_entry;
    all.link = link_entry;
    all.opendir = open_folder;
    all.readdir = read_folder;
    all.releasedir = release_folder;
    all.fsyncdir = sync_node;
    all.open = open_file;
    all.read = read_file;
    all.write = write_file;
    all.fsync = sync_node;
    all.fallocate = allocate;
    all.statfs = file_system_status;
    return all;
}

}  // namespace penstock::forgetful
