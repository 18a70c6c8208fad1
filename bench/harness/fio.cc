#include "bench/harness/fio.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <thread>

#include "bench/harness/command.h"

namespace penstock::bench {
namespace {

// Fields of the terse output, version 3, which semicolons separate.
enum TerseField : size_t { kError = 4, kReadKib = 5, kReadKibPerSecond = 6, kTerseFields };

constexpr uint64_t kBlockSizes[] = {256 << 10, 1 << 20, 4 << 20};

std::vector<std::string> split(const std::string& line) {
    std::vector<std::string> fields;
    std::istringstream in(line);
    for (std::string field; std::getline(in, field, ';');) fields.push_back(field);
    return fields;
}

}  // namespace

std::string describe(const FioJob& job) {
    std::string text = job.engine;
    if (job.depth > 1) text += ", depth " + std::to_string(job.depth);
    if (job.jobs > 1) text += ", " + std::to_string(job.jobs) + " threads";
    return text + ", " + std::to_string(job.block_size >> 10) + " KiB, " +
           (job.direct ? "direct" : "buffered");
}

std::vector<FioJob> fio_sweep(bool huge_pages, bool smoke) {
    if (smoke) return {{"io_uring", 16, 1 << 20, 1, true, huge_pages}};
    std::vector<FioJob> jobs;
    for (const uint64_t block_size : kBlockSizes) {
        for (const char* engine : {"io_uring", "libaio"}) {
            for (const unsigned depth : {4u, 16u, 32u})
                jobs.push_back({engine, depth, block_size, 1, true, huge_pages});
        }
        jobs.push_back({"psync", 1, block_size, 1, true, huge_pages});
    }
    return jobs;
}

std::vector<FioJob> fio_other_jobs(bool smoke) {
    if (smoke) return {{"psync", 1, 1 << 20, 1, false, false}};
    const unsigned cpus = std::max(1u, std::thread::hardware_concurrency());
    std::vector<FioJob> jobs;
    for (const uint64_t block_size : kBlockSizes) {
        jobs.push_back({"psync", 1, block_size, 1, false, false});
        for (const unsigned threads : {cpus, 2 * cpus}) {
            if (threads == 1) continue;
            for (const bool direct : {false, true})
                jobs.push_back({"psync", 1, block_size, threads, direct, false});
        }
    }
    return jobs;
}

std::string why_no_fio() {
    const CommandResult result = run_command({"fio", "--version"});
    if (result.exit_code == 0) return "";
    return "fio is not installed (setup/install.sh test installs it)";
}

std::optional<double> run_fio(const FioJob& job, const std::string& path, uint64_t size) {
    std::vector<std::string> words;
    if (job.huge_pages) words = {"env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"};
    const std::string part = std::to_string(size / job.jobs);
    for (const std::string& word : {
             std::string("fio"),
             std::string("--name=read"),
             "--filename=" + path,
             std::string("--readonly"),
             std::string("--rw=read"),
             "--size=" + part,
             "--offset_increment=" + part,
             "--bs=" + std::to_string(job.block_size),
             std::string("--ioengine=") + job.engine,
             "--iodepth=" + std::to_string(job.depth),
             std::string("--direct=") + (job.direct ? "1" : "0"),
             "--numjobs=" + std::to_string(job.jobs),
             std::string("--thread"),
             std::string("--group_reporting"),
             std::string("--invalidate=0"),  // the caller has set the cache state
             std::string("--iomem=malloc"),  // its default
             std::string("--output-format=terse"),
             std::string("--terse-version=3"),
         }) {
        words.push_back(word);
    }
    const CommandResult result = run_command(words);
    const std::vector<std::string> fields = split(result.first_line);
    if (result.exit_code != 0 || fields.size() < kTerseFields || fields[kError] != "0" ||
        std::strtoull(fields[kReadKib].c_str(), nullptr, 10) << 10 != size) {
        return std::nullopt;
    }
    return std::strtod(fields[kReadKibPerSecond].c_str(), nullptr) * 1024;
}

}  // namespace penstock::bench
