// What a FileSystem is made of: a service on a device. The only class behind the public handle.
#pragma once

#include <memory>

#include "penstock/file_system.h"
#include "service/service.h"

namespace penstock::file {

class System {
public:
    // `storage`: what to read from; the public door makes it from the options, tests and benches
    // bring their own.
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

// The storage that the options name.
Result<std::shared_ptr<storage::Storage>> open_storage(const FileSystemOptions& options);

}  // namespace penstock::file
