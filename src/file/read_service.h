// The threads and storage that files with the same device and options share. Any thread.
#pragma once

#include <cstdint>
#include <memory>

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

// That read, by these options.
[[nodiscard]] unsigned thread_count(const FileOptions& options);

struct ReadService {
    std::shared_ptr<storage::Storage> storage;
    std::unique_ptr<CostBook> costs;
    std::unique_ptr<transfer::Engine> engine;

    // With a storage of the caller's own; nobody shares it.
    static Result<std::shared_ptr<ReadService>> make(const Device& device,
                                                     const FileOptions& options,
                                                     std::shared_ptr<storage::Storage> storage);
    // That of the device and options, made if there is none. It stays for later files until the
    // device goes; without a device until the program ends.
    static Result<std::shared_ptr<ReadService>> shared(const Device& device,
                                                       const FileOptions& options);
};

// The same device; the services made for it go with its last handle.
[[nodiscard]] std::shared_ptr<backend::Device> with_services(
    std::shared_ptr<backend::Device> device);

}  // namespace penstock::file
