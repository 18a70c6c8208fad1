// Files below that stay open when programs have closed them, so that the next open asks storage no
// more than whether they have changed. Any thread.
//
// A file that is being written is not kept: other programs could not run it (ETXTBSY).
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "penstock/file_cache.h"

namespace penstock::cache_service {

// One open of a program. The kernel checks what it may do with it.
struct OpenedFile {
    CachedFile file;
    int descriptor = -1;  // of the file below, which `file` closes
    bool writes = false;
    bool direct = false;                  // the kernel keeps no pages of what is written
    std::shared_ptr<const void> counted;  // by HandleLimit, while the descriptor is open
};

class KeptFiles {
public:
    using Key = std::pair<dev_t, ino_t>;

    // Keeps up to `count_max` files, those that were opened last.
    explicit KeptFiles(size_t count_max) : count_max_(count_max) {}

    // Keeps a file that was opened for reading, unless it is open for writing.
    void keep(const Key& key, const OpenedFile& opened);
    // Returns a file that is kept and has not changed since; the next reads may use it.
    std::optional<OpenedFile> find(const Key& key);
    // Closes a file: it is to be written, or its name goes.
    void drop(const Key& key);
    // Closes all of them, because descriptors are short.
    void drop_all();

private:
    using Entry = std::pair<Key, OpenedFile>;
    bool attributes_are_new(dev_t device, int descriptor);

    const size_t count_max_;
    std::mutex mutex_;
    std::list<Entry> files_;  // the last used one first
    std::map<Key, std::list<Entry>::iterator> places_;
    std::map<dev_t, bool> is_fuse_;
};

}  // namespace penstock::cache_service
