// What all requests of a mount share, and the groups of functions that serve them.
//
// The kernel sends requests to several threads at once. Each function answers its request once.
#pragma once

#define FUSE_USE_VERSION 312
#include <fuse3/fuse_lowlevel.h>

#include <fcntl.h>

#include <cerrno>
#include <memory>
#include <string>

#include "handle_limit.h"
#include "kept_files.h"
#include "mount.h"
#include "nodes.h"
#include "penstock/file_cache.h"

namespace penstock::cache_service {

// Seconds for which the kernel trusts attributes and names.
inline constexpr double kAttributesValid_s = 1.0;
// Bytes of one read or write: the most that Linux asks of FUSE.
inline constexpr unsigned kRequestSizeMax = 1 << 20;

struct Served {
    FileCache cache;
    HandleLimit handles;
    Nodes nodes;         // goes before the two above, which what is open there uses
    std::string report;  // the value of kReportAttribute
    bool as_callers;     // this process may act as any user, so files belong to who makes them
    KeptFiles kept;
    OtherFiles others;
    const bool read_only;
    const dev_t device;          // of the root of what is shown
    bool writes_direct = false;  // files that are only written; set when the session begins
};

inline Served& served(fuse_req_t request) {
    return *static_cast<Served*>(fuse_req_userdata(request));
}
inline Node& node_of(fuse_req_t request, fuse_ino_t number) {
    return served(request).nodes.of(number);
}
inline KeptFiles::Key key_of(const Node& node) {
    return {node.identity.device, node.identity.number};
}
// Runs `open`, which returns something false with errno set if it opens nothing. Where descriptors
// are short it closes what no program has open, and runs it again.
template <class Open>
auto with_descriptors(Served* all, const Open& open) {
    auto opened = open();
    if (opened || (errno != EMFILE && errno != ENFILE)) return opened;
    all->kept.drop_all();
    all->others.close_all();
    all->nodes.close_all();
    opened = open();
    if (opened || (errno != EMFILE && errno != ENFILE)) return opened;
    (void)all->cache.flush();  // files that were dirty are closed then
    opened = open();
    if (opened || (errno != EMFILE && errno != ENFILE)) return opened;
    all->nodes.close_nameless();  // last, as programs may still use them
    return open();
}
// Returns a descriptor of a node, which stays open while the result lives. Returns none with errno
// set.
inline Below open_node(fuse_req_t request, Node& node) {
    Served& all = served(request);
    return with_descriptors(&all, [&] { return all.nodes.open(node); });
}
inline Below open_node(fuse_req_t request, fuse_ino_t number) {
    return open_node(request, node_of(request, number));
}
// Counts one more descriptor for the program or user that sent a request. Returns null with errno
// set if that one may have no more.
inline std::shared_ptr<const void> count_handle(fuse_req_t request) {
    Served& all = served(request);
    const fuse_ctx& caller = *fuse_req_ctx(request);
    if (auto counted = all.handles.enter(caller.uid, caller.pid); counted != nullptr)
        return counted;
    all.kept.drop_all();
    return all.handles.enter(caller.uid, caller.pid);
}
// Drops the bytes of files that no program can open again.
inline void drop_gone(Served& all) {
    for (const Below& gone : all.nodes.take_gone()) all.cache.forget_nameless(gone.get());
}
// Takes back look-ups of the kernel.
inline void forget(fuse_req_t request, fuse_ino_t number, uint64_t count) {
    Served& all = served(request);
    Node& node = all.nodes.of(number);
    const KeptFiles::Key key = key_of(node);
    if (!all.nodes.forget(node, count)) return;
    all.kept.drop(key);
    drop_gone(all);
}
// Does as openat(2). A mount that is read-only leaves the time of access, where its user may decide
// that.
inline int open_quietly(const Served& all, int folder, const char* path, int flags) {
    if (!all.read_only) return openat(folder, path, flags);
    const int opened = openat(folder, path, flags | O_NOATIME);
    return opened >= 0 || errno != EPERM ? opened : openat(folder, path, flags);
}
// Gives an object the number that programs find.
inline void set_shown_number(const Served& all, struct stat* attributes) {
    attributes->st_ino = shown_number(all.device, attributes->st_dev, attributes->st_ino);
}
// Answers with errno, or with success.
inline void reply_result(fuse_req_t request, bool good) {
    fuse_reply_err(request, good ? 0 : errno);
}

// Looks a name up, and describes it for the kernel. Returns false with errno set.
bool look_up(fuse_req_t request, fuse_ino_t folder, const char* name, fuse_entry_param* entry);
// Answers with the attributes of an object.
void reply_attributes(fuse_req_t request, Node* node, const Below& below);

void add_attribute_functions(fuse_lowlevel_ops* functions);
void add_extended_attribute_functions(fuse_lowlevel_ops* functions);
void add_file_functions(fuse_lowlevel_ops* functions);
void add_folder_functions(fuse_lowlevel_ops* functions);
void add_name_functions(fuse_lowlevel_ops* functions);

}  // namespace penstock::cache_service
