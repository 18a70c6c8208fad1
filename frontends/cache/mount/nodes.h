// Files, folders and all else below that the kernel knows by a number.
//
// A node remembers under which name in which folder it was found last. Only those that were used
// last keep a descriptor; another is opened again by its name when a request needs it, and must be
// the same object then (ESTALE: the kernel looks the path up again). So there may be any number of
// nodes. What has lost its name keeps its descriptor, except where that would keep its folder from
// being removed (NFS); there it lives on in the handles that programs have. Of what programs hold
// without a handle (O_PATH, working directories) only so much is kept: nothing else limits it. Any
// thread.
//
// A node lives while the kernel has looked it up, while nodes in it live, and while requests say
// so.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "below.h"

namespace penstock::cache_service {

// What a program has open. Requests on the same object may use its descriptor.
struct Handle {
    Handle() = default;
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
    virtual ~Handle() = default;

    int descriptor = -1;  // stays open while this lives

private:
    friend class Nodes;
    std::list<std::shared_ptr<Handle>>::iterator place_;  // among the handles of its node
};

class Node {
public:
    explicit Node(const Identity& of) : identity(of) {}
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;

    const Identity identity;
    // The version of the file of which the kernel's page cache holds bytes; 0: none.
    std::atomic<uint64_t> version_cached{0};
    // The set-user-ID or set-group-ID bit was there when the kernel was last told of the mode.
    std::atomic<bool> has_set_id{false};

private:
    friend class Nodes;
    // The lock of Nodes guards all of these.
    uint64_t lookups_ = 0;              // that the kernel has not forgotten
    uint64_t uses_ = 0;                 // nodes whose parent it is, and requests
    unsigned changes_ = 0;              // of its name, now; it keeps its descriptor meanwhile
    Node* parent_ = nullptr;            // null: it has no name that is known
    std::string name_;                  // in the parent
    Below descriptor_;                  // O_PATH; none: it is opened when a request needs it
    bool is_replaced_ = false;          // its number is another object's now
    std::list<Node*>* list_ = nullptr;  // that it is in: closable_ or nameless_ of Nodes
    std::list<Node*>::iterator use_;    // in that list
    std::list<std::shared_ptr<Handle>> handles_;  // that programs have
    // Counts changes of names in this folder, after each. A look-up that saw none knows that its
    // name is right.
    std::atomic<uint64_t> name_changes_{0};
};

// What a name stands for while a request changes it. Its node keeps a descriptor meanwhile.
struct NamedObject {
    Below below;  // none: there is no such thing
    Identity identity;
    int error = 0;  // why there is none
    Node* node = nullptr;
};

class Nodes {
public:
    // Takes over `root`, a descriptor opened with O_PATH. At most about `open_max` nodes that could
    // be opened again keep a descriptor, and a quarter as many that could not.
    Nodes(int root, size_t open_max);

    // Returns the node of the kernel's number. The kernel knows it, so it exists.
    [[nodiscard]] Node& of(uint64_t number) {
        return number == kRoot ? root_ : *reinterpret_cast<Node*>(number);
    }
    [[nodiscard]] uint64_t number_of(const Node& node) const {
        return &node == &root_ ? kRoot : reinterpret_cast<uint64_t>(&node);
    }
    // Returns a descriptor of a node: its own, that of a handle, or a new one. Returns none with
    // errno set; ESTALE: its name stands for nothing or for another object.
    Below open(Node& node);
    // Opens the folder of a node, and tells its name there. Returns none with errno set; ESTALE:
    // its name is not known.
    Below open_folder_of(Node& node, std::string* name);
    // Returns whether a node may stand for what has its number now. What is found by the number
    // alone is of another object otherwise.
    bool is_current(const Node& node);
    // Finds the object `name` of a folder, opens it, describes it in `found` and counts a look-up.
    // Returns null with errno set.
    Node* look_up(Node& folder, const char* name, Below* below, struct stat* found);
    // Enters an object that was made without a name, describes it in `found` and counts a look-up.
    // Returns null with errno set.
    Node* enter_nameless(const Below& below, struct stat* found);
    // Takes back look-ups. Returns whether those were all; then the node may be gone.
    bool forget(Node& node, uint64_t count);
    // Returns the files without a name that the kernel has forgotten since the last call: no
    // program can open them again.
    std::vector<Below> take_gone();
    // Closes all descriptors that can be opened again, because descriptors are short.
    void close_all();
    // Closes those of nodes without a name too, which are lost with it (ESTALE).
    void close_nameless();

    void add_handle(Node& node, const std::shared_ptr<Handle>& handle);
    // Drops the table's share of a handle, which closes it unless a request uses it.
    void remove_handle(Node& node, Handle& handle);

    // Opens what a name stands for. end_change() follows.
    NamedObject begin_change(const Below& folder, const char* name);
    void end_change(const NamedObject& object);
    // Say what has been done to names of this mount, before the kernel is told.
    void removed(const NamedObject& gone, Node& folder, const char* name);
    // `replaced` is what `to_name` stood for; it has the old name now if the two were exchanged.
    void renamed(const NamedObject& moved, Node& from, const char* name,
                 const NamedObject& replaced, Node& to, const char* to_name, bool exchanged);

private:
    static constexpr uint64_t kRoot = 1;
    using Table = std::multimap<std::pair<dev_t, ino_t>, std::unique_ptr<Node>>;
    // What is destroyed after the lock is given up, because a close may wait for storage.
    struct Leftovers {
        std::vector<std::unique_ptr<Node>> nodes;
        std::vector<Below> descriptors;
    };
    // A node to be opened by its name.
    struct Step {
        Node* node;
        Node* parent;
        std::string name;
    };
    enum class Opened { kYes, kNo, kAgain };

    // All of these require the lock.
    Below opened(Node& node);
    Node* find(const Identity& identity, Leftovers* left);
    void set_descriptor(Node& node, const Below& below, Leftovers* left);
    void set_name(Node& node, Node& parent, const char* name, Leftovers* left);
    void lose_name(Node& node, Leftovers* left);
    void enter_in_list(Node& node, Leftovers* left);
    static void close_oldest(std::list<Node*>* list, size_t count_max, Leftovers* left);
    void drop_unused(Node* node, Leftovers* left);
    void lost(const NamedObject& gone, const Node& folder, const char* name, Leftovers* left);

    Below open_again(Node& node, std::unique_lock<std::mutex>* lock, Leftovers* left);
    Opened open_step(const Step& step, Below* at, std::unique_lock<std::mutex>* lock,
                     Leftovers* left);

    Node root_;
    const size_t open_max_, nameless_max_;
    std::mutex mutex_;
    std::vector<Below> gone_;  // see take_gone()
    Table nodes_;
    // Have a descriptor, last used first: can be opened again; have neither a name nor a handle.
    std::list<Node*> closable_, nameless_;
};

}  // namespace penstock::cache_service
