// Files, folders and all else below that the kernel knows by a number.
//
// Each has a descriptor opened with O_PATH, so that it keeps its identity under any name, and a
// count of the look-ups that the kernel has not forgotten. Any thread.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace penstock::cache_service {

struct Node {
    int descriptor = -1;  // O_PATH
    dev_t device = 0;
    ino_t number = 0;
    mode_t type = 0;       // S_IFMT bits
    uint64_t lookups = 0;  // guarded by the lock of Nodes
    // The version of the file of which the kernel's page cache holds bytes; 0: none.
    std::atomic<uint64_t> version_cached{0};
    // The set-user-ID or set-group-ID bit was there when the kernel was last told of the mode.
    std::atomic<bool> has_set_id{false};

    // Returns a name under which the object itself is opened.
    [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor); }
    Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    ~Node();
};

class Nodes {
public:
    // Takes over `root`, a descriptor opened with O_PATH.
    explicit Nodes(int root);

    // Returns the node of the kernel's number. The kernel knows it, so it exists.
    [[nodiscard]] Node& of(uint64_t number) {
        return number == kRoot ? root_ : *reinterpret_cast<Node*>(number);
    }
    [[nodiscard]] uint64_t number_of(const Node& node) const {
        return &node == &root_ ? kRoot : reinterpret_cast<uint64_t>(&node);
    }
    // Finds the object `name` of a folder, describes it in `found` and counts a look-up. Returns
    // null with errno set.
    Node* look_up(const Node& folder, const char* name, struct stat* found);
    // Takes back look-ups. Returns the node if those were all: no other request can find it then.
    std::unique_ptr<Node> forget(Node& node, uint64_t count);

private:
    static constexpr uint64_t kRoot = 1;

    Node root_;
    std::mutex mutex_;
    std::map<std::pair<dev_t, ino_t>, std::unique_ptr<Node>> nodes_;
};

}  // namespace penstock::cache_service
