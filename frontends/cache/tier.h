// The folder of the tier: whether it can be used.
#pragma once

#include <string>

#include "options.h"
#include "penstock/status.h"

namespace penstock::cache_service {

// Returns a path without links and dots, or as it is where there is no such file.
std::string real_path(const std::string& path);
// Returns why the tier that the options name cannot be, as a line; empty: it may be tried.
std::string why_no_tier(const Options& options);
// Returns why a cache cannot start beside a log of writes, as a line.
std::string why_no_log(const Options& options, const Status& status);

}  // namespace penstock::cache_service
