// Programs that read by the shared table, and ask here for what is not in it. Each connection has
// a thread, which answers one request after the other (abi/cache_protocol.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>

#include "leases.h"
#include "penstock/abi/cache_protocol.h"
#include "penstock/file_cache.h"

namespace penstock::cache_service {

// The files that programs read. One is kept open here while they may read it by the table.
class ReadFiles {
public:
    // `folder` is the one whose files are served.
    ReadFiles(const std::string& folder, FileCache cache);
    ~ReadFiles();
    ReadFiles(const ReadFiles&) = delete;
    ReadFiles& operator=(const ReadFiles&) = delete;
    // Files of this device are shown by the mount, whose files below are of the other one. Both
    // share the descriptors of the process.
    void set_mount(uint64_t device, uint64_t below);

    // Opens the file behind a program's descriptor once more, and lets programs read it by the
    // table, and write it by grants if `how` is 1. If it is 2, the program writes it below, so only
    // a file of the mount is served. The descriptor must allow as much. Errors: those of kOpen.
    cache_protocol::CacheReply open(int descriptor, uint32_t how);
    cache_protocol::CacheReply fetch(const cache_protocol::CacheRequest& request);
    // Writes back the file behind a program's descriptor, and drops what is cached of it.
    cache_protocol::CacheReply drop_bytes(int descriptor);
    void used(const cache_protocol::CacheRequest& request);
    // Answers kGrant, kSync, kFlush, kPass, kClose, kRelease, kTruncate and kError of a process
    // for a file.
    cache_protocol::CacheReply change(const cache_protocol::CacheRequest& request, int process);
    // A process has ended: it holds no file any more.
    void release(int process);
    // Closes a file, because its name goes through the mount. Programs that have it open read it
    // there.
    void drop(uint64_t device, uint64_t inode) { (void)remove({device, inode}); }
    // Closes all files that programs do not write here, because descriptors are short.
    void drop_all();
    // Closes files whose last name is gone, so that their storage is free, and those that programs
    // have written and do not write now, so that other programs may run them. Looks at some.
    void close_unneeded();
    // Returns the files that programs read most, as a JSON array.
    [[nodiscard]] std::string json(size_t count) const;

private:
    using Key = std::pair<uint64_t, uint64_t>;  // device, inode
    struct Entry {
        CachedFile file;
        int descriptor = -1;  // which `file` has
        bool leased = false;  // or nobody can change it but through this cache
        bool writes = false;
        bool used = true;  // since close_unneeded() looked at it; protected by mutex_
        std::string path;
        uint64_t size = 0;
        std::list<Key>::iterator use;  // in uses_
        // Is locked shared while a chunk is granted. None is while `retiring` is above 0: so many
        // threads take the file out of the table.
        std::shared_mutex granting;
        int retiring = 0;
    };
    // Files that processes change by calls that are not served, and how many calls of each.
    using Holds = std::map<Key, std::map<int, unsigned>>;
    std::shared_ptr<Entry> find(const Key& key);
    std::shared_ptr<Entry> remove(const Key& key);
    bool take_out(const Key& key, const std::shared_ptr<Entry>& entry);
    static void retire(Entry& entry, int change);
    cache_protocol::CacheReply pass(const cache_protocol::CacheRequest& request, const Key& key,
                                    int process);
    cache_protocol::CacheReply told_reply(const cache_protocol::CacheRequest& request,
                                          const Key& key, const std::shared_ptr<Entry>& entry);
    void hold(const Key& key, int process);
    void release(const Key& key, int process);
    void make_room();
    Status flush_all();
    [[nodiscard]] bool is_passed(const Key& key) const;
    [[nodiscard]] bool is_held(const Key& key) const;
    void note_change(const Key& key);
    bool take_change(const Key& key);
    void broken(int descriptor);

    cache_protocol::CacheReply open_of_mount(uint64_t inode, int descriptor);
    cache_protocol::CacheReply enter(const Key& key, const std::shared_ptr<Entry>& entry);

    [[nodiscard]] int refusal(int descriptor, const struct stat& status, bool writes) const;

    FileCache cache_;
    const std::string folder_;  // ends with a slash
    uint64_t mount_ = 0, below_mount_ = 0;
    size_t open_max_;
    std::mutex opening_;  // one open of a file at a time; locked before mutex_
    mutable std::mutex mutex_;
    std::map<Key, std::shared_ptr<Entry>> entries_;
    std::list<Key> uses_;   // the last used one first
    std::set<Key> passed_;  // files that programs write in ways that are not served
    Holds held_;
    // Files that were passed. Their times may not tell of a change within a clock tick.
    std::set<Key> changed_;
    Key looked_at_;  // by close_unneeded()
    Leases leases_;
};

class Clients {
public:
    // Listens on a new socket at `path`, which only this user may use, for programs that use files
    // below `folder`. `statistics` returns JSON.
    // `stop` is called once, by a program that asks the service to end. Errors: those of bind(2).
    static Result<std::unique_ptr<Clients>> listen(
        const std::string& path, const std::string& folder, FileCache cache,
        std::function<std::string(const ReadFiles&)> statistics, std::function<void()> stop);
    [[nodiscard]] ReadFiles& files() { return files_; }
    ~Clients();
    Clients(const Clients&) = delete;
    Clients& operator=(const Clients&) = delete;

private:
    // A process that may write by grants.
    struct Writer {
        uint32_t number = 0;
        int process = -1;  // a pidfd
        unsigned connections = 0;
    };
    uint32_t add_writer(int connection);
    void remove_writer(int process);
    void sweep_writers();
    void sweep_files();

    Clients(const std::string& folder, FileCache cache)
        : cache_(cache), files_(folder, std::move(cache)) {}
    void accept_all();
    void serve(int connection);
    void answer(int connection, const cache_protocol::CacheRequest& request, int descriptor);

    FileCache cache_;
    ReadFiles files_;
    std::function<std::string(const ReadFiles&)> statistics_;
    std::function<void()> stop_;
    std::string path_;
    int listener_ = -1;
    int wake_ = -1;        // an eventfd that ends accept_all()
    std::thread thread_;   // accepts
    std::thread sweeper_;  // closes files without a name
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<int> connections_;
    std::map<int, Writer> writers_;  // by the number of the process
    uint32_t writer_count_ = 0;
    bool stopping_ = false;
};

}  // namespace penstock::cache_service
