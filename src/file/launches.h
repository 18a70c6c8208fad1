// Which file systems hear of launches on a device, before they begin. Any thread.
#pragma once

#include "backend/backend.h"
#include "penstock/kernel.h"
#include "service/service.h"

namespace penstock::file {

// From now on `service` hears of launches on its device, until stop_hearing() has returned.
void hear_launches(service::Service& service);
void stop_hearing(service::Service& service);
void tell_launch(const backend::Device& device, backend::StreamId stream,
                 const LaunchRequest& request);

}  // namespace penstock::file
