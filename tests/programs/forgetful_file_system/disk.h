// The state of a disk that forgets what was not synced: a tree of nodes as programs see it, and a
// folder below that holds what is durable.
//
// The model:
// - Writes and truncations of a file stay in memory until the file is synced. At a loss of power
//   each of them survives with probability 1/2; of a write, each page of 4 KiB by itself. Survivors
//   reach the folder in the order in which they were made.
// - Changes of names form one journal for the whole disk, as in ext4 and XFS. A sync of a file or
//   folder makes the journal durable up to the last change that concerns it, and no further. At a
//   loss of power a prefix of the rest survives, whose length is chosen at random.
// - Mode, owner and times live in memory. Those of a file become durable with its sync; those of a
//   folder, with the end of the program.
// - Symbolic links have one name, and there are no extended attributes.
// - Seed 0 loses all that may be lost.
// - A disk may be told to be read-only, as after an error that ends the journal: nothing more
//   changes, and nothing more becomes durable. Or to be full: files get no longer, and no more. Or
//   broken: each call fails. A loss of power ends the first.
// The folder below may not be changed meanwhile. Not thread-safe.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace penstock::forgetful {

constexpr uint64_t kPageSize = 4096;                  // what is kept or lost as one
constexpr uint64_t kFileSizeMax = uint64_t{1} << 30;  // files are held in memory

// A write or a truncation that is not durable yet.
struct Change {
    bool truncation = false;
    uint64_t offset = 0;  // of a truncation: the new size
    std::string bytes;
};

struct Node {
    struct stat status {};  // st_ino is the node's number, which is never used again
    uint64_t shown = 0;     // the number that programs see: a file keeps it when power is lost
    bool loaded = false;    // whether `bytes` has what the file below had
    std::string bytes;      // of a file: its content; of a symbolic link: its target
    std::map<std::string, std::shared_ptr<Node>> entries;  // of a folder
    Node* parent = nullptr;                                // of a folder; the root: none
    std::string name;                                      // of a folder, in `parent`
    int descriptor = -1;  // of the file below; -1: its creation is not durable, or it is no file
    std::vector<Change> unsynced;
    uint64_t lookups = 0;  // references that the kernel has

    [[nodiscard]] bool is_folder() const { return S_ISDIR(status.st_mode); }
    [[nodiscard]] bool is_file() const { return S_ISREG(status.st_mode); }
    Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    ~Node();
};
using NodePointer = std::shared_ptr<Node>;

// A change of names that is not durable yet. Paths are relative to the folder below.
struct NameChange {
    enum class Kind { kCreate, kMakeFolder, kSymbolicLink, kLink, kUnlink, kRemoveFolder, kRename };
    Kind kind;
    std::string path, new_path;  // new_path: of a link and of a rename
    NodePointer node;
    std::vector<uint64_t> concerned;  // numbers of the nodes whose sync makes this durable
};

enum class Mode { kWell, kReadOnly, kFull, kBroken };

struct Loss {
    uint64_t pages = 0, pages_lost = 0;  // of writes; a truncation counts as a page
    uint64_t names = 0, names_lost = 0;
};

// Functions with an int return 0 or a negative errno.
class Disk {
public:
    // Reads the tree below `folder`, an open descriptor. `honest`: whether syncs are carried out.
    Disk(int folder, uint64_t seed, bool honest);

    [[nodiscard]] const NodePointer& root() const { return root_; }
    void be(Mode mode) { mode_ = mode; }
    // Return why nothing can be read, or changed, 0 or a negative errno. `grows`: it takes space.
    [[nodiscard]] int refusal() const { return mode_ == Mode::kBroken ? -EIO : 0; }
    [[nodiscard]] int refusal_to_change(bool grows) const;
    int read(Node& file, uint64_t offset, uint64_t size, std::string* to);
    int write(const NodePointer& file, uint64_t offset, std::string bytes);
    int truncate(const NodePointer& file, uint64_t size);

    // Makes a file, folder or symbolic link by its mode. `*made` is set on success.
    int make(Node& folder, const std::string& name, const struct stat& status,
             const std::string& target, NodePointer* made);
    int link(const NodePointer& node, Node& folder, const std::string& name);
    int remove(Node& folder, const std::string& name, bool is_folder);
    int rename(Node& from, const std::string& name, Node& to, const std::string& new_name,
               bool replace);

    int sync(const NodePointer& node);
    void sync_all();
    // Loses power: what may be lost is lost, and the tree is read anew. All nodes are other ones
    // afterwards, but for the root.
    Loss lose();

private:
    void load_tree(Node& folder, const std::string& path, std::map<ino_t, NodePointer>* links);
    void load(Node& file);
    void commit_names(size_t count);
    void commit(const NameChange& change);
    void note(NameChange::Kind kind, const std::string& path, const std::string& new_path,
              const NodePointer& node, const Node& folder, const Node* other);
    bool survives() { return seed_ != 0 && (random_() & 1) != 0; }
    void keep_attributes(const Node& folder, const std::string& path);
    void lose_changes(Node& node, Loss* loss);
    void remember_time(const Node& node);

    const int folder_;
    const uint64_t seed_;
    const bool honest_;
    std::mt19937_64 random_;
    uint64_t last_number_ = 0;
    std::map<ino_t, uint64_t> shown_;  // by the number of the file below
    // The same: when a file was changed last, though a loss of power has changed it below.
    std::map<ino_t, timespec> changed_;
    Mode mode_ = Mode::kWell;
    NodePointer root_;
    std::vector<NameChange> names_;   // the journal's end that is not durable
    std::set<NodePointer> unsynced_;  // nodes with changes that are not durable
};

// Returns the attributes of a node as programs see them.
struct stat attributes_of(const Node& node);
// Sets the times that a change of bytes (`modified`) or of attributes changes.
void touch(Node& node, bool modified);

}  // namespace penstock::forgetful
