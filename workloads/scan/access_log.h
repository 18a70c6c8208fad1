// A realistic web server log and lists of suspicious addresses to look for in it, from a seed.
//
// The input of the log scanner of SPIN (seed 003, section 6.2) as the demo, the benchmark and the
// tests use it. Equal options give equal bytes on every machine. Knows nothing of GPUs. An
// AccessLog belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::scan {

struct AccessLogOptions {
    uint64_t seed = 1;
    uint32_t suspicious_count = 100;  // addresses on the list
    double hit_share = 0.01;          // share of lines whose client is on the list, 0 to 1
};

// `count` different IPv4 addresses as text; the same ones that AccessLog puts into lines that hit.
std::vector<std::string> suspicious_addresses(const AccessLogOptions& options);
// One pattern a line, as `grep -f` reads it.
std::string pattern_list(const std::vector<std::string>& patterns);

// Lines in Apache's combined format, about 190 bytes each, with rising times.
class AccessLog {
public:
    explicit AccessLog(const AccessLogOptions& options);

    // Appends whole lines to `out` until it holds at least `size` bytes more.
    void append(size_t size, std::string* out);
    // Lines so far whose client was drawn from the list. A drawn address may contain a listed one
    // by chance, so the count of a search can be a little larger.
    [[nodiscard]] uint64_t hit_count() const { return hit_count_; }

private:
    uint64_t draw();
    void append_line(std::string* out);

    AccessLogOptions options_;
    uint64_t state_;
    uint64_t hit_count_ = 0;
    uint64_t now_seconds_ = 0;  // since the log began
    std::vector<std::string> suspicious_;
    std::vector<std::string> requests_;  // `"GET ... HTTP/1.1" 200`
    std::vector<std::string> tails_;     // ` "referrer" "user agent"\n`
};

// Writes a log of at least `size` bytes to `path` (created or emptied); an errno, or 0.
int write_access_log(const AccessLogOptions& options, uint64_t size, const std::string& path);

}  // namespace penstock::scan
