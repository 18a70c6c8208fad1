// Tells file systems about kernel launches on their device, before each launch begins. Any thread.
#pragma once

#include "backend/backend.h"
#include "penstock/kernel.h"
#include "service/service.h"

namespace penstock::file {

// Reports launches on the device of `service` to it, until stop_hearing() has returned.
void hear_launches(service::Service& service);
void stop_hearing(service::Service& service);
void tell_launch(const backend::Device& device, backend::StreamId stream,
                 const LaunchRequest& request);

}  // namespace penstock::file
