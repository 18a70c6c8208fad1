#include "file/launches.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace penstock::file {
namespace {

struct Hearers {
    std::shared_mutex mutex;  // guards `services`; shared while services are told of a launch
    std::vector<service::Service*> services;
};

// Never destroyed, because file systems may outlive static objects.
Hearers& hearers() {
    static auto* all = new Hearers;
    return *all;
}

}  // namespace

void hear_launches(service::Service& service) {
    const std::unique_lock lock(hearers().mutex);
    hearers().services.push_back(&service);
}

void stop_hearing(service::Service& service) {
    const std::unique_lock lock(hearers().mutex);
    std::erase(hearers().services, &service);
}

void tell_launch(const backend::Device& device, backend::StreamId stream,
                 const LaunchRequest& request) {
    const std::shared_lock lock(hearers().mutex);
    for (service::Service* service : hearers().services) {
        if (&service->device() == &device) service->before_launch(stream, request);
    }
}

}  // namespace penstock::file
