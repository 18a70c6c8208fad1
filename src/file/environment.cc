#include "file/environment.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "penstock/options.h"

namespace penstock {

std::string_view file::environment(const char* variable) {
    const char* const value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

bool file::environment_allows_second_context() {
    return environment("PENSTOCK_SECOND_CONTEXT") != "0";
}

namespace {

using file::environment;

// Reads a variable that is 1 or 0; not set or empty is 0. Returns false if it is neither.
bool read_switch(const char* variable, bool* on) {
    std::string wish(environment(variable));
    std::ranges::transform(wish, wish.begin(), [](unsigned char c) { return std::tolower(c); });
    const auto is = [&wish](std::string_view word) { return wish == word; };
    *on = is("1") || is("true") || is("on") || is("yes");
    return *on || is("") || is("0") || is("false") || is("off") || is("no");
}

}  // namespace

Status fill_from_environment(FileOptions* options) {
    const std::string_view named = options->route_of_environment ? environment("PENSTOCK_ROUTE")
                                                                 : "";
    std::optional<Route> route;
    if (!named.empty() && named != "auto") {
        for (const Route one : {Route::kCached, Route::kDirect, Route::kPeer})
            if (named == name(one)) route = one;
        if (!route.has_value())
            return {EINVAL, "PENSTOCK_ROUTE", "is not one of auto, cached, direct, peer"};
    }
    bool strict = false;
    if (options->strict_of_environment && !read_switch("PENSTOCK_STRICT", &strict))
        return {EINVAL, "PENSTOCK_STRICT", "is neither 1 nor 0"};
    if (!options->explain.has_value()) {
        bool explain = false;
        if (!read_switch("PENSTOCK_EXPLAIN", &explain))
            return {EINVAL, "PENSTOCK_EXPLAIN", "is neither 1 nor 0"};
        options->explain = explain;
    }
    for (ReadOptions* const each : {&options->reading, &options->writing}) {
        if (!each->route.has_value()) each->route = route;
        each->strict = each->strict || strict;
    }
    options->route_of_environment = options->strict_of_environment = false;
    return {};
}

}  // namespace penstock
