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
#include <string>

#include "leases.h"
#include "penstock/abi/cache_protocol.h"
#include "penstock/file_cache.h"

namespace penstock::cache_service {

// The files that programs read. One is kept open here while they may read it by the table.
class ReadFiles {
public:
    explicit ReadFiles(FileCache cache);
    // Files of this device are shown by the mount, whose files below are of the other one.
    void set_mount(uint64_t device, uint64_t below) {
        mount_ = device;
        below_mount_ = below;
    }

    // Opens the file behind a program's descriptor once more, and lets programs read it by the
    // table. Errors: those of kOpen.
    cache_protocol::CacheReply open(int descriptor);
    cache_protocol::CacheReply fetch(const cache_protocol::CacheRequest& request);
    // Returns the files that programs read most, as a JSON array.
    [[nodiscard]] std::string json(size_t count) const;

private:
    using Key = std::pair<uint64_t, uint64_t>;  // device, inode
    struct Entry {
        CachedFile file;
        int descriptor = -1;  // which `file` has
        bool leased = false;  // or nobody can change it but through this cache
        std::string path;
        uint64_t size = 0;
        std::atomic<uint64_t> next{0};    // the end of the last range that was fetched
        std::atomic<uint64_t> window{0};  // bytes to fetch beyond what is asked for
        std::list<Key>::iterator use;     // in uses_
    };
    std::shared_ptr<Entry> find(const Key& key);
    void broken(int descriptor);

    cache_protocol::CacheReply open_of_mount(uint64_t inode);
    cache_protocol::CacheReply enter(const Key& key, const std::shared_ptr<Entry>& entry);

    FileCache cache_;
    uint64_t mount_ = 0, below_mount_ = 0;
    size_t open_max_;
    mutable std::mutex mutex_;
    std::map<Key, std::shared_ptr<Entry>> entries_;
    std::list<Key> uses_;  // the last used one first
    Leases leases_;
};

class Clients {
public:
    // Listens on a new socket at `path`, which only this user may use. `statistics` returns JSON.
    // `stop` is called once, by a program that asks the service to end. Errors: those of bind(2).
    static Result<std::unique_ptr<Clients>> listen(
        const std::string& path, FileCache cache,
        std::function<std::string(const ReadFiles&)> statistics, std::function<void()> stop);
    void set_mount(uint64_t device, uint64_t below) { files_.set_mount(device, below); }
    ~Clients();
    Clients(const Clients&) = delete;
    Clients& operator=(const Clients&) = delete;

private:
    explicit Clients(FileCache cache) : cache_(cache), files_(std::move(cache)) {}
    void accept_all();
    void serve(int connection);
    void answer(int connection, const cache_protocol::CacheRequest& request, int descriptor);

    FileCache cache_;
    ReadFiles files_;
    std::function<std::string(const ReadFiles&)> statistics_;
    std::function<void()> stop_;
    std::string path_;
    int listener_ = -1;
    int wake_ = -1;  // an eventfd that ends accept_all()
    std::thread thread_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<int> connections_;
    bool stopping_ = false;
};

}  // namespace penstock::cache_service
