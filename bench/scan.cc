// Question: is `penstock scan` faster than grep and ripgrep at what all do, as whole commands?
//
// Workload: a generated web server log that the OS has cached is searched for lists of 100 and
// 10,000 IPv4 addresses (with 10,000, 30 % of the lines hit) and for one string. Baseline: GNU
// grep, LC_ALL=C grep -a -F -c, and, if it is installed, ripgrep with the same options. Every run's
// count is compared with the other's. Not measured: cold files, many small files, output of lines.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "bench/harness/command.h"
#include "bench/harness/report.h"
#include "bench/harness/test_file.h"
#include "scan/access_log.h"

namespace penstock::bench {
namespace {

constexpr const char*
    kQuestion = "is `penstock scan` faster than grep and ripgrep, as whole commands?";

// Files that are removed with the object.
class Folder {
public:
    Folder() {
        const char* base = std::getenv("TMPDIR");
        path_ = std::string(base != nullptr ? base : "/var/tmp") + "/penstock-bench-scan-XXXXXX";
        if (mkdtemp(path_.data()) == nullptr) fail(path_ + ": cannot be created");
    }
    ~Folder() {
        for (const char* name : {"log", "list"}) unlink(file(name).c_str());
        rmdir(path_.c_str());
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    [[nodiscard]] std::string file(const char* name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

struct Case {
    const char* name;
    unsigned patterns;
    double hit_share;
};

// The baseline: a program that takes grep's options.
struct Baseline {
    const char* name;
    const char* program;
};

std::vector<Baseline> installed_baselines() {
    std::vector<Baseline> all{{"grep-F", "grep"}};
    if (run_command({"rg", "--version"}).exit_code == 0) all.push_back({"ripgrep", "rg"});
    return all;
}

// The log and the list of one case.
struct Workload {
    Folder folder;
    std::string log = folder.file("log"), list = folder.file("list");
    uint64_t size = 0;  // bytes of the log

    Workload(const Case& chosen, bool smoke) : size(smoke ? 8 << 20 : 1ull << 30) {
        scan::AccessLogOptions options;
        options.suspicious_count = chosen.patterns;
        options.hit_share = chosen.hit_share;
        if (const int error = scan::write_access_log(options, size, log); error != 0)
            fail(log + ": " + std::strerror(error));
        std::ofstream(list) << scan::pattern_list(scan::suspicious_addresses(options));
    }
};

void measure(Report& report, const Arguments& arguments, const Case& chosen,
             const Workload& workload, const Baseline& baseline) {
    const std::string &log = workload.log, &list = workload.list;
    const char* command = std::getenv("PENSTOCK_COMMAND");
    const std::string penstock = command != nullptr ? command : "penstock";
    Row row;
    row.name = chosen.name;
    row.against = baseline.name;
    row.verified = true;
    std::string expected;
    constexpr double kHotShare = 0.999;
    double least_share = 1;
    // grep's exit code is 1 if no line is hit. A Linux kernel that reclaims idle pages ahead of
    // need takes some even of a file that is read all the time. So each run is warmed, and hot
    // means all but a thousandth.
    const auto run = [&](const std::vector<std::string>& words) {
        warm_file(log, kHotShare);
        const CommandResult answer = run_command(words);
        if (answer.exit_code > 1) fail(words[0] + ": failed");
        if (expected.empty()) expected = answer.first_line;
        row.verified = row.verified && !expected.empty() && answer.first_line == expected;
        least_share = std::min(least_share, cached_share(log));
        return answer.seconds;
    };
    row.pairs = take_pairs(
        arguments.pairs,
        [&] {
            return run({penstock, "scan", log, "--patterns", list, "--count", "--quiet", "--device",
                        arguments.device});
        },
        [&] {
            return run({baseline.program, "-a", "-F", "-c", "-f", list, log});
        },
        &row.cpu_seconds);
    row.bytes = workload.size;
    row.verified = row.verified && least_share >= kHotShare;
    row.note = expected + " lines hit of " + std::to_string(workload.size >> 20) +
               " MiB, whole commands, at least " + std::to_string(least_share) +
               " of it in the OS cache behind each";
    report.add(std::move(row));
}

}  // namespace

int run_all(const Arguments& arguments) {
    Report report("scan", kQuestion, arguments);
    report.describe("device", arguments.device);
    setenv("LC_ALL", "C", 1);
    const std::vector<Baseline> baselines = installed_baselines();
    if (baselines.size() == 1) report.describe("ripgrep", "not installed");
    for (const Case& chosen :
         {Case{"count-100-patterns", 100, 0.01}, Case{"count-10000-patterns", 10000, 0.3},
          Case{"count-1-pattern", 1, 0.01}}) {
        if (!wanted(arguments, chosen.name)) continue;
        const Workload workload(chosen, arguments.smoke);
        for (const Baseline& baseline : baselines)
            measure(report, arguments, chosen, workload, baseline);
    }
    report.write();
    return 0;
}

}  // namespace penstock::bench

int main(int argc, char** argv) {
    return penstock::bench::run_all(
        penstock::bench::parse_arguments(argc, argv, penstock::bench::kQuestion));
}
