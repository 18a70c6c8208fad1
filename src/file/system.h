// Implements FileSystem: a service on a device. This is the only class behind the public handle.
#pragma once

#include <memory>

#include "penstock/file_system.h"
#include "service/service.h"

namespace penstock::file {

class System {
public:
    // Reads from `storage`. The public FileSystem::create() makes the storage from the options;
    // tests and benchmarks pass their own.
    static Result<FileSystem> create(const Device& device,
                                     std::shared_ptr<storage::Storage> storage,
                                     const FileSystemOptions& options);

    ~System();
    System(const System&) = delete;
    System& operator=(const System&) = delete;

    [[nodiscard]] service::Service& service() const { return *service_; }

private:
    explicit System(std::unique_ptr<service::Service> service);
    std::unique_ptr<service::Service> service_;
};

// Opens the storage that the options name.
Result<std::shared_ptr<storage::Storage>> open_storage(StorageKind kind,
                                                       const StudyOptions& study = {});

}  // namespace penstock::file
