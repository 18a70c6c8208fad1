// The threads and storage that files with the same device and options share. Any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "file/cost_book.h"
#include "penstock/device.h"
#include "penstock/options.h"
#include "penstock/status.h"
#include "storage/storage.h"
#include "transfer/engine.h"

namespace penstock::file {

// How often this process has been forked off since the first file was opened: threads and rings of
// a parent do not serve its child. A relaxed load.
[[nodiscard]] uint64_t process_number();

// That read, by these options and the environment. Into memory that the host cannot address three
// quarters of the CPUs: those fill staging faster than the link empties it, and more are in each
// other's way. EINVAL: too many, or PENSTOCK_THREADS makes no sense.
[[nodiscard]] Result<unsigned> thread_count(const FileOptions& options, const Device& device = {});

struct ReadService {
    std::shared_ptr<storage::Storage> storage;
    std::unique_ptr<CostBook> costs;
    std::unique_ptr<transfer::Engine> engine;
    bool lasting = false;  // until the program ends

    // With a storage of the caller's own; nobody shares it.
    static Result<std::shared_ptr<ReadService>> make(const Device& device,
                                                     const FileOptions& options,
                                                     std::shared_ptr<storage::Storage> storage);
    // That of the device and options, made if there is none. It stays for later files until the
    // device goes; without a device until the program ends.
    static Result<std::shared_ptr<ReadService>> shared(const Device& device,
                                                       const FileOptions& options);
};

// A thread of this process that drops what must not be dropped on a thread of an engine, which
// cannot wait for itself. It never ends. Any thread.
class Reaper {
public:
    // Made by the first call. EAGAIN: no thread is to be had.
    static Result<Reaper*> of_process();
    static Reaper* running();  // null: none was made
    void drop(std::shared_ptr<void> last);

private:
    void work();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::shared_ptr<void>> dropped_;
};

// The same device; the services made for it go with its last handle.
[[nodiscard]] std::shared_ptr<backend::Device> with_services(
    std::shared_ptr<backend::Device> device);

}  // namespace penstock::file
