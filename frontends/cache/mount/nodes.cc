// Objects below: opened by their names, found again by device and inode.
#include "nodes.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "penstock/file_cache.h"

namespace penstock::cache_service {

Nodes::Nodes(int root, size_t open_max)
    : root_(Identity{.type = S_IFDIR}),
      open_max_(std::max<size_t>(open_max, 1)),
      nameless_max_(std::max<size_t>(open_max / 4, 1)) {
    root_.descriptor_ = Below::take(root);
}

Below Nodes::opened(Node& node) {
    if (node.list_ != nullptr) node.list_->splice(node.list_->begin(), *node.list_, node.use_);
    if (node.descriptor_) return node.descriptor_;
    if (node.handles_.empty()) return {};
    const std::shared_ptr<Handle>& handle = node.handles_.front();
    return Below(std::shared_ptr<const int>(handle, &handle->descriptor));
}

// Enters a node among those whose descriptor may be closed, or takes it out, and closes the
// descriptors that were not used for longest.
void Nodes::enter_in_list(Node& node, Leftovers* left) {
    std::list<Node*>* list = nullptr;
    if (&node != &root_ && node.descriptor_ && node.changes_ == 0)
        list = node.parent_ != nullptr || !node.handles_.empty() ? &closable_ : &nameless_;
    if (list != node.list_) {
        if (node.list_ != nullptr) node.list_->erase(node.use_);
        if (list != nullptr) node.use_ = list->insert(list->begin(), &node);
        node.list_ = list;
    }
    close_oldest(&closable_, open_max_, left);
    close_oldest(&nameless_, nameless_max_, left);
}

void Nodes::close_oldest(std::list<Node*>* list, size_t count_max, Leftovers* left) {
    while (list->size() > count_max) {
        Node& unused = *list->back();
        list->pop_back();
        unused.list_ = nullptr;
        left->descriptors.push_back(std::exchange(unused.descriptor_, {}));
    }
}

void Nodes::set_descriptor(Node& node, const Below& below, Leftovers* left) {
    node.descriptor_ = below;
    enter_in_list(node, left);
}

// Drops a node that nothing needs, and then those above it that were needed for it only.
void Nodes::drop_unused(Node* node, Leftovers* left) {
    while (node != nullptr && node != &root_ && node->lookups_ == 0 && node->uses_ == 0 &&
           node->handles_.empty()) {
        Node* const parent = node->parent_;
        if (node->list_ != nullptr) node->list_->erase(node->use_);
        const auto [first,
                    last] = nodes_.equal_range({node->identity.device, node->identity.number});
        const auto place = std::find_if(
            first, last, [node](const auto& one) { return one.second.get() == node; });
        if (parent == nullptr && node->descriptor_ && node->identity.type == S_IFREG)
            gone_.push_back(node->descriptor_);
        left->nodes.push_back(std::move(place->second));
        nodes_.erase(place);
        if (parent != nullptr) --parent->uses_;
        node = parent;
    }
}

void Nodes::lose_name(Node& node, Leftovers* left) {
    Node* const parent = std::exchange(node.parent_, nullptr);
    node.name_.clear();
    enter_in_list(node, left);
    if (parent == nullptr) return;
    --parent->uses_;
    drop_unused(parent, left);
}

void Nodes::set_name(Node& node, Node& parent, const char* name, Leftovers* left) {
    if (node.parent_ == &parent && node.name_ == name) return;
    // Shown in itself by a bind mount below, a folder keeps the name that it has.
    if (&node == &parent) return;
    // Another program may have moved a folder into one that was in it. Its old name is wrong then.
    // So no node is above itself, and each way up ends.
    if (node.identity.type == S_IFDIR && node.uses_ > 0) {
        Node* above = &parent;
        while (above != nullptr && above->parent_ != &node) above = above->parent_;
        if (above != nullptr) lose_name(*above, left);
    }
    ++parent.uses_;
    Node* const old = std::exchange(node.parent_, &parent);
    node.name_ = name;
    enter_in_list(node, left);
    if (old == nullptr) return;
    --old->uses_;
    drop_unused(old, left);
}

// Returns the node of an object. A node without a descriptor does not keep its object from being
// removed below, and then another may have its number. Without a name it probably was removed.
Node* Nodes::find(const Identity& identity, Leftovers* left) {
    const auto [first, last] = nodes_.equal_range({identity.device, identity.number});
    for (auto place = first; place != last; ++place) {
        Node& node = *place->second;
        if (node.is_replaced_) continue;
        const bool is_open = node.descriptor_ || !node.handles_.empty();
        const bool may_be = node.parent_ != nullptr || node.identity.born_s != 0;
        if (is_open ? node.identity.type == identity.type : may_be && node.identity.is(identity))
            return &node;
        node.is_replaced_ = true;
        lose_name(node, left);
        return nullptr;
    }
    return nullptr;
}

bool Nodes::is_current(const Node& node) {
    const std::lock_guard lock(mutex_);
    return !node.is_replaced_ &&
           (node.parent_ != nullptr || node.descriptor_ || !node.handles_.empty());
}

Below Nodes::open(Node& node) {
    Leftovers left;
    std::unique_lock lock(mutex_);
    Below below = opened(node);
    return below ? below : open_again(node, &lock, &left);
}

Below Nodes::open_folder_of(Node& node, std::string* name) {
    Leftovers left;
    std::unique_lock lock(mutex_);
    Node* const folder = node.parent_;
    if (folder == nullptr) {
        errno = ESTALE;
        return {};
    }
    *name = node.name_;
    ++folder->uses_;
    Below below = opened(*folder);
    if (!below) below = open_again(*folder, &lock, &left);
    const int error = errno;
    --folder->uses_;
    drop_unused(folder, &left);
    errno = error;
    return below;
}

Below Nodes::open_again(Node& node, std::unique_lock<std::mutex>* lock, Leftovers* left) {
    // Another name may be there after each try only if a program has changed it through the mount.
    constexpr int kTriesMax = 8;
    Opened result = Opened::kAgain;
    for (int tries = 0; result == Opened::kAgain && tries < kTriesMax; ++tries) {
        std::vector<Step> steps;  // from the node up to below one that is open
        Below at;
        for (Node* one = &node; one != nullptr && !(at = opened(*one)); one = one->parent_) {
            steps.push_back({one, one->parent_, one->name_});
            ++one->uses_;
        }
        result = at ? Opened::kYes : Opened::kNo;
        int error = ESTALE;
        for (auto step = steps.rbegin(); result == Opened::kYes && step != steps.rend(); ++step) {
            result = open_step(*step, &at, lock, left);
            error = errno;
        }
        for (const Step& step : steps) {
            --step.node->uses_;
            drop_unused(step.node, left);
        }
        if (result == Opened::kYes) return at;
        errno = error;
    }
    if (result == Opened::kAgain) errno = ESTALE;
    return {};
}

// Opens a node in its folder `at`, which becomes the node's descriptor. Gives the lock up
// meanwhile. On kNo errno is set.
Nodes::Opened Nodes::open_step(const Step& step, Below* at, std::unique_lock<std::mutex>* lock,
                               Leftovers* left) {
    lock->unlock();
    struct stat attributes {};
    Identity identity;
    const Below below = Below::open(*at, step.name.c_str());
    const bool is_there = below && describe(below, &attributes, &identity);
    const int error = errno;
    lock->lock();
    left->descriptors.push_back(*at);
    // Another request may have opened it, or moved it, which opens it too.
    *at = opened(*step.node);
    if (*at) {
        left->descriptors.push_back(below);
        return Opened::kYes;
    }
    if (is_there && step.node->identity.is(identity) && !step.node->is_replaced_) {
        set_descriptor(*step.node, below, left);
        *at = below;
        return Opened::kYes;
    }
    left->descriptors.push_back(below);
    if (step.node->parent_ != nullptr &&
        (step.node->parent_ != step.parent || step.node->name_ != step.name))
        return Opened::kAgain;
    errno = is_there || error == ENOENT || error == ENOTDIR ? ESTALE : error;
    return Opened::kNo;
}

Node* Nodes::look_up(Node& folder, const char* name, Below* below, struct stat* found) {
    constexpr int kTriesMax = 4;
    const Below in = open(folder);
    if (!in) return nullptr;
    for (int tries = 1;; ++tries) {
        const uint64_t changes_before = folder.name_changes_;
        Identity identity;
        *below = Below::open(in, name);
        if (!*below || !describe(*below, found, &identity)) return nullptr;
        Leftovers left;
        const std::lock_guard lock(mutex_);
        Node* node = find(identity, &left);
        const bool is_named = node != nullptr && node->parent_ == &folder && node->name_ == name;
        const bool may_have_moved = !is_named && changes_before != folder.name_changes_;
        if (may_have_moved && tries < kTriesMax) continue;
        if (node == nullptr) {
            const auto place = nodes_.emplace(std::pair(identity.device, identity.number),
                                              std::make_unique<Node>(identity));
            node = place->second.get();
        }
        ++node->lookups_;
        // Where names change all the time this one may be wrong. That shows when it is used, and
        // without one the node could not be closed.
        if (!may_have_moved || node->parent_ == nullptr) set_name(*node, folder, name, &left);
        if (!opened(*node)) set_descriptor(*node, *below, &left);
        return node;
    }
}

Node* Nodes::enter_nameless(const Below& below, struct stat* found) {
    Identity identity;
    if (!describe(below, found, &identity)) return nullptr;
    Leftovers left;
    const std::lock_guard lock(mutex_);
    // A node with its number is of an object that was removed below before.
    if (Node* const old = find(identity, &left); old != nullptr) {
        old->is_replaced_ = true;
        lose_name(*old, &left);
    }
    const auto place = nodes_.emplace(std::pair(identity.device, identity.number),
                                      std::make_unique<Node>(identity));
    Node* const node = place->second.get();
    ++node->lookups_;
    set_descriptor(*node, below, &left);
    return node;
}

bool Nodes::forget(Node& node, uint64_t count) {
    if (&node == &root_) return false;
    Leftovers left;
    const std::lock_guard lock(mutex_);
    node.lookups_ -= count;
    const bool all = node.lookups_ == 0;
    drop_unused(&node, &left);
    return all;
}

std::vector<Below> Nodes::take_gone() {
    const std::lock_guard lock(mutex_);
    return std::exchange(gone_, {});
}

void Nodes::close_all() {
    Leftovers left;
    const std::lock_guard lock(mutex_);
    close_oldest(&closable_, 0, &left);
}

void Nodes::close_nameless() {
    Leftovers left;
    const std::lock_guard lock(mutex_);
    close_oldest(&nameless_, 0, &left);
}

void Nodes::add_handle(Node& node, const std::shared_ptr<Handle>& handle) {
    Leftovers left;
    const std::lock_guard lock(mutex_);
    node.handles_.push_front(handle);
    handle->place_ = node.handles_.begin();
    if (node.parent_ == nullptr) enter_in_list(node, &left);
}

void Nodes::remove_handle(Node& node, Handle& handle) {
    Leftovers left;
    std::shared_ptr<Handle> closed;
    const std::lock_guard lock(mutex_);
    closed = std::move(*handle.place_);
    node.handles_.erase(handle.place_);
    if (!node.handles_.empty()) return;
    if (node.parent_ == nullptr) {
        // What has no name lived on in its handles. The kernel may still know it after the last.
        const std::string path = "/proc/self/fd/" + std::to_string(handle.descriptor);
        if (!node.descriptor_ && nameless(handle.descriptor) != Nameless::kKeptByNfs)
            node.descriptor_ = Below::take(::open(path.c_str(), O_PATH | O_CLOEXEC));
        enter_in_list(node, &left);
    }
    drop_unused(&node, &left);
}

}  // namespace penstock::cache_service
