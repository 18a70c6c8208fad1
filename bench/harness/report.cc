#include "bench/harness/report.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <thread>

namespace penstock::bench {
namespace {

constexpr unsigned kPairsMax = 1000;

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        if (static_cast<unsigned char>(c) < 0x20) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", c);
            out += code;
        } else {
            out += c;
        }
    }
    return out + '"';
}

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
}

std::string first_line_of(const char* path, const char* key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (line.rfind(key, 0) != 0) continue;
        const size_t colon = line.find(':');
        return line.substr(line.find_first_not_of(" \t", colon + 1));
    }
    return "unknown";
}

[[noreturn]] void usage(const char* program, const char* question, bool has_trace, int code) {
    const std::string whole = program, prefix = "penstock-bench-";
    const size_t at = whole.rfind(prefix);
    const std::string name = at == std::string::npos ? whole : whole.substr(at + prefix.size());
    std::fprintf(code == 0 ? stdout : stderr,
                 "%s: %s\nusage: %s [--smoke] [--full] [--only TEXT] [--pairs N] [--device D] "
                 "[--json FILE]%s\nexample: penstock bench %s --smoke --json %s.json\n",
                 program, question, program, has_trace ? " [--trace FILE]" : "", name.c_str(),
                 name.c_str());
    std::exit(code);
}

}  // namespace

Arguments parse_arguments(int argc, char** argv, const char* question, bool has_trace) {
    Arguments arguments;
    const auto quit = [&](int code) { usage(argv[0], question, has_trace, code); };
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto value = [&]() -> std::string {
            if (i + 1 >= argc) quit(2);
            return argv[++i];
        };
        if (word == "--help") quit(0);
        if (word == "--smoke") {
            arguments.smoke = true;
        } else if (word == "--full") {
            arguments.full = true;
        } else if (word == "--pairs") {
            const std::string text = value();
            char* end = nullptr;
            const long count = std::strtol(text.c_str(), &end, 10);
            if (*end != '\0' || count < 1 || count > long{kPairsMax}) quit(2);
            arguments.pairs = static_cast<unsigned>(count);
        } else if (word == "--device") {
            arguments.device = value();
        } else if (word == "--only") {
            arguments.only = value();
        } else if (word == "--json") {
            arguments.json = value();
        } else if (word == "--trace" && has_trace) {
            arguments.trace = value();
        } else {
            quit(2);
        }
    }
    if (arguments.smoke) arguments.pairs = 1;
    return arguments;
}

double cpu_time() {
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    double sum = 0;
    for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
        rusage usage{};
        getrusage(who, &usage);
        sum += seconds(usage.ru_utime) + seconds(usage.ru_stime);
    }
    return sum;
}

double timed(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::pair<double, double>> take_pairs(unsigned count,
                                                  const std::function<double()>& run,
                                                  const std::function<double()>& baseline,
                                                  double* cpu_seconds,
                                                  const std::function<void()>& prepare) {
    std::vector<std::pair<double, double>> pairs;
    double spent = 0;
    for (unsigned i = 0; i <= count; ++i) {
        if (prepare) prepare();
        const double before = cpu_time();
        const double first = run();
        if (i > 0) spent += cpu_time() - before;
        if (prepare) prepare();
        const double second = baseline();
        if (i > 0) pairs.emplace_back(first, second);
    }
    if (cpu_seconds != nullptr) *cpu_seconds = spent;
    return pairs;
}

Report::Report(std::string bench, std::string question, const Arguments& arguments)
    : bench_(std::move(bench)), question_(std::move(question)), arguments_(arguments) {
    utsname system{};
    uname(&system);
    describe("kernel", system.release);
    describe("cpu", first_line_of("/proc/cpuinfo", "model name"));
    describe("cpus", std::to_string(std::thread::hardware_concurrency()));
    describe("memory", first_line_of("/proc/meminfo", "MemTotal"));
    describe("pairs", std::to_string(arguments.pairs));
    describe("smoke", arguments.smoke ? "yes" : "no");
}

void Report::describe(const std::string& key, const std::string& value) {
    environment_.emplace_back(key, value);
}

void Report::add(Row row) {
    std::vector<double> ratios;
    const bool larger = row.unit == "share" ||
                        (row.unit.size() > 2 && row.unit.substr(row.unit.size() - 2) == "/s");
    for (const auto& [mine, other] : row.pairs)
        ratios.push_back(larger ? mine / other : other / mine);
    std::sort(ratios.begin(), ratios.end());
    std::fprintf(stderr, "%-28s against %-24s %6.3f of %zu pairs%s  %s\n", row.name.c_str(),
                 row.against.c_str(), ratios.empty() ? 0.0 : ratios[ratios.size() / 2],
                 ratios.size(), row.verified ? "" : " NOT VERIFIED", row.note.c_str());
    rows_.push_back(std::move(row));
}

void Report::write() const {
    if (rows_.empty() && !arguments_.only.empty())
        fail("--only " + arguments_.only + ": no case of " + bench_ +
             " that runs here has that in "
             "its name; without --only all run, and tell their names");
    std::string out = "{\n  \"bench\": " + quoted(bench_) +
                      ",\n  \"question\": " + quoted(question_) + ",\n  \"environment\": {";
    for (size_t i = 0; i < environment_.size(); ++i) {
        out += (i == 0 ? "\n    " : ",\n    ") + quoted(environment_[i].first) + ": " +
               quoted(environment_[i].second);
    }
    out += "\n  },\n  \"rows\": [";
    for (size_t i = 0; i < rows_.size(); ++i) {
        const Row& row = rows_[i];
        out += (i == 0 ? "\n    {" : ",\n    {") + std::string("\"case\": ") + quoted(row.name) +
               ", \"against\": " + quoted(row.against) + ", \"unit\": " + quoted(row.unit) +
               ",\n     \"pairs\": [";
        for (size_t k = 0; k < row.pairs.size(); ++k) {
            out += (k == 0 ? "[" : ", [") + number(row.pairs[k].first) + ", " +
                   number(row.pairs[k].second) + "]";
        }
        out += "],\n     \"bytes\": " + std::to_string(row.bytes) +
               ", \"verified\": " + (row.verified ? "true" : "false") +
               ", \"simulated\": " + (row.simulated ? "true" : "false") +
               ", \"cpu_seconds\": " + number(row.cpu_seconds) + ", \"note\": " + quoted(row.note) +
               "}";
    }
    out += "\n  ]\n}\n";
    if (arguments_.json.empty()) {
        std::cout << out;
        return;
    }
    std::ofstream file(arguments_.json);
    file << out;
    file.close();
    if (!file) fail(arguments_.json + ": " + std::strerror(errno));
}

void fail(const std::string& text) {
    std::fprintf(stderr, "penstock-bench: %s\n", text.c_str());
    std::exit(1);
}

void need(const Status& status, const char* what) {
    if (!status.ok()) fail(std::string(what) + ": " + status.message());
}

}  // namespace penstock::bench
