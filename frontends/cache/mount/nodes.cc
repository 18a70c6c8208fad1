// Objects below: opened by their names, found again by device and inode.
#include "nodes.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace penstock::cache_service {

Node::~Node() {
    if (descriptor >= 0) close(descriptor);
}

Nodes::Nodes(int root) {
    root_.descriptor = root;
    root_.type = S_IFDIR;
}

Node* Nodes::look_up(const Node& folder, const char* name, struct stat* found) {
    const int descriptor = openat(folder.descriptor, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0) return nullptr;
    if (fstat(descriptor, found) != 0) {
        const int error = errno;
        close(descriptor);
        errno = error;
        return nullptr;
    }
    const std::lock_guard lock(mutex_);
    auto& place = nodes_[{found->st_dev, found->st_ino}];
    if (place == nullptr) {
        place = std::make_unique<Node>();
        place->descriptor = descriptor;
        place->device = found->st_dev;
        place->number = found->st_ino;
        place->type = found->st_mode & S_IFMT;
    } else {
        close(descriptor);
    }
    ++place->lookups;
    return place.get();
}

std::unique_ptr<Node> Nodes::forget(Node& node, uint64_t count) {
    if (&node == &root_) return nullptr;
    const std::lock_guard lock(mutex_);
    node.lookups -= count;
    if (node.lookups > 0) return nullptr;
    const auto place = nodes_.find({node.device, node.number});
    auto gone = std::move(place->second);
    nodes_.erase(place);
    return gone;
}

}  // namespace penstock::cache_service
