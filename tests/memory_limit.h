// A memory cgroup for tests: what this process takes while the object lives, the pages of the OS
// cache that it brings in among it, is held to a limit.
//
// Only *_test.cc files include it. Needs the right to make cgroups; skips() says what is missing.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace penstock {

class MemoryLimit {
public:
    explicit MemoryLimit(uint64_t size) {
        skips_ = find();
        if (!skips_.empty()) return;
        std::error_code error;
        const std::string folder = root_ + "/penstock-test-" + std::to_string(getpid());
        if (!std::filesystem::create_directory(folder, error)) {
            skips_ = "no memory cgroup: " + folder + ": " + error.message();
            return;
        }
        folder_ = folder;
        const char* limit = version_ == 1 ? "/memory.limit_in_bytes" : "/memory.max";
        skips_ = put(folder_ + limit, std::to_string(size));
        if (skips_.empty()) skips_ = put(folder_ + "/cgroup.procs", std::to_string(getpid()));
        inside_ = skips_.empty();
    }
    ~MemoryLimit() {
        if (inside_) (void)put(back_ + "/cgroup.procs", std::to_string(getpid()));
        if (!folder_.empty()) rmdir(folder_.c_str());
    }
    MemoryLimit(const MemoryLimit&) = delete;
    MemoryLimit& operator=(const MemoryLimit&) = delete;

    // Why there is no limit; empty: there is.
    [[nodiscard]] const std::string& skips() const { return skips_; }

    // Bytes that the machine can give without swapping.
    static uint64_t available() {
        std::ifstream told("/proc/meminfo");
        std::string word;
        uint64_t kib = 0;
        while (told >> word) {
            if (word == "MemAvailable:" && told >> kib) return kib << 10;
        }
        return 0;
    }

private:
    // Where memory cgroups are mounted, of version 1 or 2, and which of them we are in.
    std::string find() {
        std::ifstream mounts("/proc/self/mounts");
        std::string line;
        while (std::getline(mounts, line)) {
            std::istringstream words(line);
            std::string source, place, kind, options;
            words >> source >> place >> kind >> options;
            if (kind == "cgroup" && ("," + options + ",").find(",memory,") != std::string::npos) {
                root_ = place;
                version_ = 1;
            } else if (kind == "cgroup2" && version_ == 0 && controls_memory(place)) {
                root_ = place;
                version_ = 2;
            }
        }
        if (version_ == 0) return "no memory cgroups are mounted here";
        std::ifstream own("/proc/self/cgroup");
        while (std::getline(own, line)) {
            const size_t first = line.find(':'), second = line.find(':', first + 1);
            if (second == std::string::npos) continue;
            const std::string controllers = line.substr(first + 1, second - first - 1);
            if (controllers == (version_ == 1 ? "memory" : "")) {
                back_ = root_ + line.substr(second + 1);
            }
        }
        return back_.empty() ? "/proc/self/cgroup does not tell our memory cgroup" : "";
    }

    static bool controls_memory(const std::string& place) {
        std::ifstream told(place + "/cgroup.subtree_control");
        std::string word;
        while (told >> word) {
            if (word == "memory") return true;
        }
        return false;
    }

    // Why `text` could not be written; empty: it was.
    static std::string put(const std::string& path, const std::string& text) {
        std::ofstream file(path);
        file << text;
        file.close();
        return file.fail() ? "no memory cgroup: " + path + ": " + std::strerror(errno) : "";
    }

    int version_ = 0;
    std::string root_, back_, folder_;
    bool inside_ = false;
    std::string skips_;
};

}  // namespace penstock
