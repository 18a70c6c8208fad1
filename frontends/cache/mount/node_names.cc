// Nodes follow the names that programs change through the mount.
#include <cerrno>
#include <utility>

#include "nodes.h"
#include "penstock/file_cache.h"

namespace penstock::cache_service {

NamedObject Nodes::begin_change(const Below& folder, const char* name) {
    NamedObject object;
    struct stat attributes {};
    object.below = Below::open(folder, name);
    if (!object.below || !describe(object.below, &attributes, &object.identity)) {
        object.error = errno;
        object.below = {};
        return object;
    }
    Leftovers left;
    const std::lock_guard lock(mutex_);
    object.node = find(object.identity, &left);
    if (object.node == nullptr) return object;
    ++object.node->uses_;
    ++object.node->changes_;
    if (!object.node->descriptor_) object.node->descriptor_ = object.below;
    enter_in_list(*object.node, &left);
    return object;
}

void Nodes::end_change(const NamedObject& object) {
    if (object.node == nullptr) return;
    Leftovers left;
    const std::lock_guard lock(mutex_);
    --object.node->uses_;
    --object.node->changes_;
    enter_in_list(*object.node, &left);
    drop_unused(object.node, &left);
}

// Takes a name from the object that had it. A node that was known by another name keeps that.
void Nodes::lost(const NamedObject& gone, const Node& folder, const char* name, Leftovers* left) {
    Node* const node = gone.below ? find(gone.identity, left) : nullptr;
    if (node == nullptr) return;
    // It may have been opened by this name, and be known by another now.
    if (nameless(node->descriptor_.get()) == Nameless::kKeptByNfs) {
        left->descriptors.push_back(std::exchange(node->descriptor_, {}));
        enter_in_list(*node, left);
    }
    if (node->parent_ != &folder || node->name_ != name) return;
    if (!opened(*node) && nameless(gone.below.get()) != Nameless::kKeptByNfs)
        node->descriptor_ = gone.below;
    lose_name(*node, left);
}

void Nodes::removed(const NamedObject& gone, Node& folder, const char* name) {
    Leftovers left;
    const std::lock_guard lock(mutex_);
    ++folder.name_changes_;
    lost(gone, folder, name, &left);
}

void Nodes::renamed(const NamedObject& moved, Node& from, const char* name,
                    const NamedObject& replaced, Node& to, const char* to_name, bool exchanged) {
    Leftovers left;
    const std::lock_guard lock(mutex_);
    ++from.name_changes_;
    ++to.name_changes_;
    Node* const node = moved.below ? find(moved.identity, &left) : nullptr;
    Node* const other = replaced.below ? find(replaced.identity, &left) : nullptr;
    if (node != nullptr && node == other) return;  // two names of one file: both stay
    if (!exchanged) lost(replaced, to, to_name, &left);
    if (exchanged && other != nullptr) set_name(*other, from, name, &left);
    if (node != nullptr) set_name(*node, to, to_name, &left);
}

}  // namespace penstock::cache_service
