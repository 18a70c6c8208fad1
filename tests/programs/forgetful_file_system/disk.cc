// See disk.h. Calls on the folder below must succeed: the model is wrong or the disk is full where
// one fails, so the program ends.
#include "forgetful_file_system/disk.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

namespace penstock::forgetful {
namespace {

void require(bool success, const char* what, const std::string& path) {
    if (success) return;
    std::fprintf(stderr, "forgetful: %s of %s in the folder below: %s\n", what, path.c_str(),
                 std::strerror(errno));
    std::abort();
}

std::string path_of(const Node& folder) {
    if (folder.parent == nullptr) return "";
    return path_of(*folder.parent) + folder.name + "/";
}

void write_below(const Node& file, const char* bytes, uint64_t size, uint64_t offset) {
    while (size > 0) {
        const ssize_t done = pwrite(file.descriptor, bytes, size, static_cast<off_t>(offset));
        require(done > 0, "write", "a file");
        bytes += done;
        size -= static_cast<uint64_t>(done);
        offset += static_cast<uint64_t>(done);
    }
}

void apply(const Node& file, const Change& change) {
    if (!change.truncation)
        write_below(file, change.bytes.data(), change.bytes.size(), change.offset);
    else
        require(ftruncate(file.descriptor, static_cast<off_t>(change.offset)) == 0, "truncate",
                "a file");
}

// Makes the attributes durable. Times are the last thing that changes.
void apply_attributes(const Node& file) {
    const timespec times[2] = {file.status.st_atim, file.status.st_mtim};
    require(fchown(file.descriptor, file.status.st_uid, file.status.st_gid) == 0, "owner",
            "a file");
    require(fchmod(file.descriptor, file.status.st_mode & 07777) == 0, "mode", "a file");
    require(futimens(file.descriptor, times) == 0, "times", "a file");
}

}  // namespace

Node::~Node() {
    if (descriptor >= 0) close(descriptor);
}

struct stat attributes_of(const Node& node) {
    struct stat status = node.status;
    status.st_ino = node.shown;
    return status;
}

void touch(Node& node, bool modified) {
    clock_gettime(CLOCK_REALTIME, &node.status.st_ctim);
    if (modified) node.status.st_mtim = node.status.st_ctim;
}

Disk::Disk(int folder, uint64_t seed, bool honest)
    : folder_(folder), seed_(seed), honest_(honest), random_(seed), root_(new Node) {
    require(fstat(folder, &root_->status) == 0, "look", "the root");
    root_->status.st_ino = root_->shown = ++last_number_;
    std::map<ino_t, NodePointer> links;
    load_tree(*root_, "", &links);
}

void Disk::load_tree(Node& folder, const std::string& path, std::map<ino_t, NodePointer>* links) {
    const std::string place = path.empty() ? "." : path;
    const int opened = openat(folder_, place.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* list = opened >= 0 ? fdopendir(opened) : nullptr;
    require(list != nullptr, "open", place);
    while (const dirent* entry = readdir(list)) {
        const std::string name = entry->d_name;
        if (name == "." || name == "..") continue;
        struct stat status {};
        const std::string below = path + name;
        require(fstatat(folder_, below.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0, "look", below);
        NodePointer& known = (*links)[status.st_ino];
        if (known == nullptr) {
            known = std::make_shared<Node>();
            known->status = status;
            known->status.st_ino = ++last_number_;
            if (const auto at = changed_.find(status.st_ino); at != changed_.end())
                known->status.st_ctim = at->second;
            known->shown = shown_.try_emplace(status.st_ino, last_number_).first->second;
            if (known->is_file()) {
                known->descriptor = openat(folder_, below.c_str(), O_RDWR | O_CLOEXEC);
                require(known->descriptor >= 0, "open", below);
            } else if (known->is_folder()) {
                known->parent = &folder;
                known->name = name;
                load_tree(*known, below + "/", links);
            } else if (S_ISLNK(status.st_mode)) {
                char target[4096];
                const ssize_t size = readlinkat(folder_, below.c_str(), target, sizeof target);
                require(size >= 0, "readlink", below);
                known->bytes.assign(target, static_cast<size_t>(size));
            }
        }
        folder.entries[name] = known;
    }
    closedir(list);
}

// ---- Bytes

void Disk::load(Node& file) {
    if (file.loaded) return;
    file.loaded = true;
    if (file.descriptor < 0) return;
    file.bytes.resize(static_cast<size_t>(file.status.st_size));
    uint64_t done = 0;
    while (done < file.bytes.size()) {
        const ssize_t got = pread(file.descriptor, file.bytes.data() + done,
                                  file.bytes.size() - done, static_cast<off_t>(done));
        require(got > 0, "read", "a file");
        done += static_cast<uint64_t>(got);
    }
}

int Disk::refusal_to_change(bool grows) const {
    if (mode_ == Mode::kReadOnly) return -EROFS;
    if (mode_ == Mode::kFull && grows) return -ENOSPC;
    return refusal();
}

int Disk::read(Node& file, uint64_t offset, uint64_t size, std::string* to) {
    if (refusal() != 0) return refusal();
    load(file);
    to->clear();
    if (offset < file.bytes.size()) *to = file.bytes.substr(offset, size);
    return 0;
}

int Disk::write(const NodePointer& file, uint64_t offset, std::string bytes) {
    const uint64_t end = offset + bytes.size();
    if (offset > kFileSizeMax || end > kFileSizeMax) return -EFBIG;
    if (bytes.empty()) return 0;
    const bool grows = end > static_cast<uint64_t>(file->status.st_size);
    if (const int error = refusal_to_change(grows); error != 0) return error;
    load(*file);
    if (file->bytes.size() < end) file->bytes.resize(end);
    file->bytes.replace(offset, bytes.size(), bytes);
    file->status.st_size = static_cast<off_t>(file->bytes.size());
    file->unsynced.push_back({false, offset, std::move(bytes)});
    unsynced_.insert(file);
    touch(*file, true);
    return 0;
}

int Disk::truncate(const NodePointer& file, uint64_t size) {
    if (size > kFileSizeMax) return -EFBIG;
    if (const int error = refusal_to_change(false); error != 0) return error;
    load(*file);
    file->bytes.resize(size);
    file->status.st_size = static_cast<off_t>(size);
    file->unsynced.push_back({true, size, {}});
    unsynced_.insert(file);
    touch(*file, true);
    return 0;
}

// ---- Names

void Disk::note(NameChange::Kind kind, const std::string& path, const std::string& new_path,
                const NodePointer& node, const Node& folder, const Node* other) {
    NameChange change{kind, path, new_path, node, {node->status.st_ino, folder.status.st_ino}};
    if (other != nullptr) change.concerned.push_back(other->status.st_ino);
    names_.push_back(std::move(change));
}

int Disk::make(Node& folder, const std::string& name, const struct stat& status,
               const std::string& target, NodePointer* made) {
    if (folder.entries.contains(name)) return -EEXIST;
    if (const int error = refusal_to_change(true); error != 0) return error;
    auto node = std::make_shared<Node>();
    node->status = status;
    node->status.st_ino = node->shown = ++last_number_;
    node->status.st_nlink = node->is_folder() ? 2 : 1;
    node->status.st_size = static_cast<off_t>(target.size());
    node->bytes = target;
    touch(*node, true);
    node->status.st_atim = node->status.st_mtim;
    auto kind = NameChange::Kind::kCreate;
    if (node->is_folder()) {
        kind = NameChange::Kind::kMakeFolder;
        node->parent = &folder;
        node->name = name;
    } else if (!node->is_file()) {
        kind = NameChange::Kind::kSymbolicLink;
    }
    note(kind, path_of(folder) + name, "", node, folder, nullptr);
    folder.entries[name] = node;
    touch(folder, true);
    *made = node;
    return 0;
}

int Disk::link(const NodePointer& node, Node& folder, const std::string& name) {
    if (folder.entries.contains(name)) return -EEXIST;
    if (!node->is_file()) return -EPERM;
    if (node->status.st_nlink == 0) return -ENOENT;
    if (const int error = refusal_to_change(false); error != 0) return error;
    note(NameChange::Kind::kLink, "", path_of(folder) + name, node, folder, nullptr);
    folder.entries[name] = node;
    ++node->status.st_nlink;
    touch(*node, false);
    touch(folder, true);
    return 0;
}

int Disk::remove(Node& folder, const std::string& name, bool is_folder) {
    const auto found = folder.entries.find(name);
    if (found == folder.entries.end()) return -ENOENT;
    const NodePointer node = found->second;
    if (is_folder && !node->is_folder()) return -ENOTDIR;
    if (!is_folder && node->is_folder()) return -EISDIR;
    if (is_folder && !node->entries.empty()) return -ENOTEMPTY;
    if (const int error = refusal_to_change(false); error != 0) return error;
    note(is_folder ? NameChange::Kind::kRemoveFolder : NameChange::Kind::kUnlink,
         path_of(folder) + name, "", node, folder, nullptr);
    folder.entries.erase(found);
    node->status.st_nlink -= is_folder ? 2 : 1;
    touch(*node, false);
    touch(folder, true);
    return 0;
}

int Disk::rename(Node& from, const std::string& name, Node& to, const std::string& new_name,
                 bool replace) {
    const auto found = from.entries.find(name);
    if (found == from.entries.end()) return -ENOENT;
    if (const int error = refusal_to_change(false); error != 0) return error;
    const NodePointer node = found->second;
    const auto old = to.entries.find(new_name);
    if (old != to.entries.end()) {
        const NodePointer& victim = old->second;
        if (!replace) return -EEXIST;
        if (victim == node) return 0;
        if (victim->is_folder() && !node->is_folder()) return -EISDIR;
        if (!victim->is_folder() && node->is_folder()) return -ENOTDIR;
        if (!victim->entries.empty()) return -ENOTEMPTY;
        victim->status.st_nlink -= victim->is_folder() ? 2 : 1;
        touch(*victim, false);
    }
    note(NameChange::Kind::kRename, path_of(from) + name, path_of(to) + new_name, node, from, &to);
    from.entries.erase(found);
    to.entries[new_name] = node;
    if (node->is_folder()) {
        node->parent = &to;
        node->name = new_name;
    }
    touch(*node, false);
    touch(from, true);
    touch(to, true);
    return 0;
}

// ---- Durability

void Disk::commit(const NameChange& change) {
    const char* path = change.path.c_str();
    const char* new_path = change.new_path.c_str();
    Node& node = *change.node;
    const mode_t mode = node.status.st_mode & 07777;
    bool done = false;
    switch (change.kind) {
        case NameChange::Kind::kCreate:
            node.descriptor = openat(folder_, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
            if (struct stat below{}; fstat(node.descriptor, &below) == 0)
                shown_[below.st_ino] = node.shown;
            done = node.descriptor >= 0;
            break;
        case NameChange::Kind::kMakeFolder:
            done = mkdirat(folder_, path, mode) == 0;
            break;
        case NameChange::Kind::kSymbolicLink:
            done = symlinkat(node.bytes.c_str(), folder_, path) == 0;
            break;
        case NameChange::Kind::kLink: {
            const std::string self = "/proc/self/fd/" + std::to_string(node.descriptor);
            done = linkat(AT_FDCWD, self.c_str(), folder_, new_path, AT_SYMLINK_FOLLOW) == 0;
            break;
        }
        case NameChange::Kind::kUnlink:
            done = unlinkat(folder_, path, 0) == 0;
            break;
        case NameChange::Kind::kRemoveFolder:
            done = unlinkat(folder_, path, AT_REMOVEDIR) == 0;
            break;
        case NameChange::Kind::kRename:
            done = renameat(folder_, path, folder_, new_path) == 0;
    }
    require(done, "change of names", change.path);
}

void Disk::commit_names(size_t count) {
    for (size_t i = 0; i < count; ++i) commit(names_[i]);
    names_.erase(names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(count));
}

int Disk::sync(const NodePointer& node) {
    if (!honest_) return 0;
    if (const int error = refusal_to_change(false); error != 0) return error;
    size_t count = 0;
    for (size_t i = 0; i < names_.size(); ++i) {
        const auto& concerned = names_[i].concerned;
        if (std::ranges::find(concerned, node->status.st_ino) != concerned.end()) count = i + 1;
    }
    commit_names(count);
    if (!node->is_file()) return 0;
    for (const Change& change : node->unsynced) apply(*node, change);
    node->unsynced.clear();
    unsynced_.erase(node);
    apply_attributes(*node);
    if (struct stat below{}; fstat(node->descriptor, &below) == 0) changed_.erase(below.st_ino);
    return 0;
}

void Disk::sync_all() {
    commit_names(names_.size());
    for (const NodePointer& node : unsynced_) {
        for (const Change& change : node->unsynced) apply(*node, change);
        node->unsynced.clear();
    }
    unsynced_.clear();
    keep_attributes(*root_, "");
}

// Makes the attributes of all that is below a folder durable. Requires that its names are.
void Disk::keep_attributes(const Node& folder, const std::string& path) {
    for (const auto& [name, node] : folder.entries) {
        const std::string below = path + name;
        if (node->is_file()) apply_attributes(*node);
        if (!node->is_folder()) continue;
        const struct stat& status = node->status;
        keep_attributes(*node, below + "/");
        require(fchownat(folder_, below.c_str(), status.st_uid, status.st_gid, 0) == 0, "owner",
                below);
        require(fchmodat(folder_, below.c_str(), status.st_mode & 07777, 0) == 0, "mode", below);
    }
}

void Disk::lose_changes(Node& node, Loss* loss) {
    for (const Change& change : node.unsynced) {
        const uint64_t end = change.offset + change.bytes.size();
        uint64_t begin = change.offset;
        do {
            const uint64_t next = std::min(end, (begin / kPageSize + 1) * kPageSize);
            ++loss->pages;
            if (node.descriptor < 0 || !survives())
                ++loss->pages_lost;
            else if (change.truncation)
                apply(node, change);
            else
                write_below(node, change.bytes.data() + (begin - change.offset), next - begin,
                            begin);
            begin = next;
        } while (begin < end);
    }
    node.unsynced.clear();
}

void Disk::remember_time(const Node& node) {
    struct stat below {};
    if (node.descriptor >= 0 && fstat(node.descriptor, &below) == 0)
        changed_[below.st_ino] = node.status.st_ctim;
}

Loss Disk::lose() {
    Loss loss;
    if (mode_ == Mode::kReadOnly) mode_ = Mode::kWell;
    loss.names = names_.size();
    const size_t kept = seed_ == 0 ? 0 : random_() % (names_.size() + 1);
    loss.names_lost = loss.names - kept;
    std::vector<NodePointer> named;
    for (size_t i = 0; i < kept; ++i) named.push_back(names_[i].node);
    commit_names(kept);
    for (const NodePointer& node : named) remember_time(*node);
    names_.clear();
    // In the order of their numbers, so that the seed alone decides what survives.
    std::vector<NodePointer> nodes(unsynced_.begin(), unsynced_.end());
    std::ranges::sort(nodes, {}, [](const NodePointer& one) { return one->status.st_ino; });
    unsynced_.clear();
    for (const NodePointer& node : nodes) {
        lose_changes(*node, &loss);
        remember_time(*node);
    }
    root_->entries.clear();
    std::map<ino_t, NodePointer> links;
    load_tree(*root_, "", &links);
    return loss;
}

}  // namespace penstock::forgetful
