#include "file/environment.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::file {
namespace {

std::string value_of(const char* variable) {
    const char* const value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

}  // namespace

Status fill_from_environment(FileOptions* options) {
    const std::string named = options->route_of_environment ? value_of("PENSTOCK_ROUTE") : "";
    std::optional<Route> route;
    if (!named.empty() && named != "auto") {
        for (const Route one : {Route::kCached, Route::kDirect, Route::kPeer})
            if (named == name(one)) route = one;
        if (!route.has_value())
            return {EINVAL, "PENSTOCK_ROUTE", "is not one of auto, cached, direct, peer"};
    }
    std::string wish = options->strict_of_environment ? value_of("PENSTOCK_STRICT") : "";
    std::ranges::transform(wish, wish.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto is = [&wish](std::string_view word) { return wish == word; };
    const bool strict = is("1") || is("true") || is("on") || is("yes");
    if (!strict && !(is("") || is("0") || is("false") || is("off") || is("no")))
        return {EINVAL, "PENSTOCK_STRICT", "is neither 1 nor 0"};
    for (ReadOptions* const each : {&options->reading, &options->writing}) {
        if (!each->route.has_value()) each->route = route;
        each->strict = each->strict || strict;
    }
    options->route_of_environment = options->strict_of_environment = false;
    return {};
}

bool environment_allows_second_context() {
    const char* const wish = std::getenv("PENSTOCK_SECOND_CONTEXT");
    return wish == nullptr || std::string_view(wish) != "0";
}

}  // namespace penstock::file
