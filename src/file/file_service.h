// Holds the threads and the storage that files with the same device and options share. Any thread.
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

namespace penstock::preemption {
class Preemption;
}

namespace penstock::file {

// Returns how many forks lie between this process and the process that opened the first file. A
// child cannot use the threads and rings of its parent. The load is relaxed.
[[nodiscard]] uint64_t process_number();

// Returns how many threads read, by these options and the environment. The default is the number of
// CPUs, at most 16. It is three quarters of the CPUs if the host cannot address the device's
// memory: those fill staging faster than the link empties it, and more threads would slow each
// other down. EINVAL: the number is above the limit, or PENSTOCK_THREADS is not a valid number.
[[nodiscard]] Result<unsigned> thread_count(const FileOptions& options, const Device& device = {});

struct FileService {
    std::shared_ptr<storage::Storage> storage;
    std::unique_ptr<CostBook> costs;
    std::unique_ptr<transfer::Engine> engine;
    bool lasting = false;  // it lives until the program ends

    // Makes a service with the caller's own storage. No other caller shares it.
    static Result<std::shared_ptr<FileService>> make(const Device& device,
                                                     const FileOptions& options,
                                                     std::shared_ptr<storage::Storage> storage);
    // Returns the service of this device and these options, and makes it if there is none. It stays
    // for later files until the device is destroyed, or without a device until the program ends.
    static Result<std::shared_ptr<FileService>> shared(const Device& device,
                                                       const FileOptions& options);
};

// Destroys objects that an engine thread must not destroy, because that thread would have to wait
// for itself. One thread per process does this and never ends. Any thread.
class DeferredDeleter {
public:
    // Returns the deleter of this process. The first call makes it. EAGAIN: no thread can be
    // started.
    static Result<DeferredDeleter*> of_process();
    static DeferredDeleter* running();  // null: there is none yet
    void drop(std::shared_ptr<void> last);

private:
    void work();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::shared_ptr<void>> dropped_;
};

// Returns what runs the preemptible kernels of `device`. The first call makes it, with memory on
// the device. It lives until the last handle of with_services() is dropped. ENOMEM; ENOSYS.
[[nodiscard]] Result<preemption::Preemption*> preemption_of(backend::Device* device);

// Returns a handle to the same device. The services made for the device are destroyed with the last
// such handle.
[[nodiscard]] std::shared_ptr<backend::Device> with_services(
    std::shared_ptr<backend::Device> device);

}  // namespace penstock::file
