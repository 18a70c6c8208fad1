// Draws clients, requests and user agents; see access_log.h.
#include "scan/access_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <iterator>
#include <unordered_set>

namespace penstock::scan {
namespace {

constexpr size_t kRequestCount = 1024;  // different request lines
constexpr size_t kTailCount = 256;      // different referrer and agent pairs
constexpr size_t kWriteSize = 8 << 20;

constexpr const char* kWords[] = {"api",    "assets", "static", "images",  "users",
                                  "orders", "search", "login",  "cart",    "blog",
                                  "posts",  "v1",     "v2",     "reports", "export",
                                  "docs",   "admin",  "health", "feed",    "items"};
constexpr const char* kEndings[] = {"",     "/",     ".html",   ".js",     ".css",
                                    ".png", ".json", "?page=2", "?id=8841"};
constexpr const char* kMethods[] = {"GET", "GET", "GET", "GET", "POST", "HEAD", "PUT"};
constexpr const char* kStates[] = {"200", "200", "200", "200", "304", "301", "404", "403", "500"};
constexpr const char* kAgents[] = {
    "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/124.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:125.0) Gecko/20100101 Firefox/125.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_4 like Mac OS X) AppleWebKit/605.1.15",
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "curl/7.88.1",
    "python-requests/2.31.0"};
constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

// splitmix64: any seed gives a full-period stream.
uint64_t next_random(uint64_t* state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

template <size_t N>
const char* pick(const char* const (&from)[N], uint64_t random) {
    return from[random % N];
}

void append_number(uint64_t value, std::string* out) {
    char digits[20];
    size_t count = 0;
    do digits[count++] = static_cast<char>('0' + value % 10);
    while ((value /= 10) != 0);
    while (count > 0) out->push_back(digits[--count]);
}

void append_two_digits(uint64_t value, std::string* out) {
    out->push_back(static_cast<char>('0' + value / 10 % 10));
    out->push_back(static_cast<char>('0' + value % 10));
}

// A public-looking address: the first octet is neither 0, 10, 127 nor 224 and above.
void append_address(uint64_t random, std::string* out) {
    uint64_t first = 1 + (random & 0xFFFF) % 223;
    if (first == 10 || first == 127) ++first;
    append_number(first, out);
    for (int octet = 1; octet < 4; ++octet) {
        out->push_back('.');
        append_number((random >> (16 + 8 * octet)) & 0xFF, out);
    }
}

std::string make_path(uint64_t* state) {
    std::string path;
    const uint64_t depth = 1 + next_random(state) % 3;
    for (uint64_t i = 0; i < depth; ++i) {
        path.push_back('/');
        path += pick(kWords, next_random(state));
    }
    if (next_random(state) % 3 == 0) {
        path.push_back('/');
        append_number(next_random(state) % 100000, &path);
    }
    return path + pick(kEndings, next_random(state));
}

}  // namespace

std::vector<std::string> suspicious_addresses(const AccessLogOptions& options) {
    uint64_t state = options.seed ^ 0x5CA4;
    std::vector<std::string> addresses;
    std::unordered_set<std::string> seen;
    while (addresses.size() < options.suspicious_count) {
        std::string address;
        append_address(next_random(&state), &address);
        if (seen.insert(address).second) addresses.push_back(std::move(address));
    }
    return addresses;
}

std::string pattern_list(const std::vector<std::string>& patterns) {
    std::string list;
    for (const std::string& pattern : patterns) list += pattern + '\n';
    return list;
}

AccessLog::AccessLog(const AccessLogOptions& options)
    : options_(options), state_(options.seed), suspicious_(suspicious_addresses(options)) {
    for (size_t i = 0; i < kRequestCount; ++i) {
        const char* method = pick(kMethods, draw());
        std::string request = std::string("\"") + method + " " + make_path(&state_);
        requests_.push_back(request + " HTTP/1.1\" " + pick(kStates, draw()) + " ");
    }
    for (size_t i = 0; i < kTailCount; ++i) {
        const bool direct = draw() % 3 == 0;
        const std::string referrer = direct ? "-" : "https://www.example.com" + make_path(&state_);
        tails_.push_back(" \"" + referrer + "\" \"" + pick(kAgents, draw()) + "\"\n");
    }
}

uint64_t AccessLog::draw() { return next_random(&state_); }

void AccessLog::append_line(std::string* out) {
    const double share = static_cast<double>(draw() >> 11) * 0x1.0p-53;
    if (!suspicious_.empty() && share < options_.hit_share) {
        *out += suspicious_[draw() % suspicious_.size()];
        ++hit_count_;
    } else {
        append_address(draw(), out);
    }
    const uint64_t random = draw();
    now_seconds_ += (random & 63) == 0;
    *out += " - - [";
    append_two_digits(1 + now_seconds_ / 86400 % 28, out);
    out->push_back('/');
    *out += kMonths[now_seconds_ / (28 * 86400) % 12];
    *out += "/2026:";
    append_two_digits(now_seconds_ / 3600 % 24, out);
    out->push_back(':');
    append_two_digits(now_seconds_ / 60 % 60, out);
    out->push_back(':');
    append_two_digits(now_seconds_ % 60, out);
    *out += " +0000] ";
    *out += requests_[(random >> 6) % kRequestCount];
    append_number((random >> 20) % 65536, out);
    *out += tails_[(random >> 40) % kTailCount];
}

void AccessLog::append(size_t size, std::string* out) {
    const size_t end = out->size() + size;
    while (out->size() < end) append_line(out);
}

int write_access_log(const AccessLogOptions& options, uint64_t size, const std::string& path) {
    const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) return errno;
    AccessLog log(options);
    std::string lines;
    int error = 0;
    for (uint64_t written = 0; written < size && error == 0;) {
        lines.clear();
        log.append(size - written < kWriteSize ? size - written : kWriteSize, &lines);
        for (size_t done = 0; done < lines.size() && error == 0;) {
            const ssize_t count = write(file, lines.data() + done, lines.size() - done);
            if (count >= 0)
                done += static_cast<size_t>(count);
            else if (errno != EINTR)
                error = errno;
        }
        written += lines.size();
    }
    if (close(file) != 0 && error == 0) error = errno;
    return error;
}

}  // namespace penstock::scan
