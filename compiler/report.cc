// Writes reports.
#include "compiler/report.h"

#include <llvm/Support/JSON.h>
#include <llvm/Support/raw_ostream.h>

namespace penstock::compiler {

static std::string value_line(const ValueReport& value) {
    if (value.size == 0) return "    not saved: " + value.name + " (" + value.why + ")\n";
    return std::string(value.if_read_short ? "    saved if the read is short: " : "    saved: ") +
           value.name + ", " + std::to_string(value.size) + " B for each " +
           (value.where == "shared" ? "block, shared memory" : value.where) + " (" + value.why +
           ")\n";
}

std::string report_text(const std::string& file, const std::vector<KernelReport>& kernels) {
    std::string result;
    for (const KernelReport& kernel : kernels) {
        result += file + ":" + std::to_string(kernel.line) + ": kernel " + kernel.name + ", " +
                  std::to_string(kernel.points.size()) +
                  (kernel.points.size() == 1 ? " point" : " points");
        for (const std::string& instance : kernel.instances) result += ", " + instance;
        result += "\n  saved state: " + std::to_string(kernel.thread_words * 4) +
                  " B for each thread, " + std::to_string(kernel.block_words * 4) +
                  " B for each block, " + std::to_string(kernel.shared_size) +
                  " B of shared memory; parameters, " + std::to_string(kernel.parameter_bytes) +
                  " B, are kept once for a launch\n";
        if (kernel.one_run)
            result += "  threads return in divergent flow: each place runs one block\n";
        for (const PointReport& point : kernel.points) {
            result += "  " + file + ":" + std::to_string(point.line) + ": point " +
                      std::to_string(point.number) + ", " + point.call + ": " +
                      std::to_string(point.thread_bytes) + " B for each thread, " +
                      std::to_string(point.block_bytes) + " B for each block, " +
                      std::to_string(point.shared_bytes) + " B of shared memory" +
                      (point.dynamic_shared ? ", and all dynamic shared memory" : "") +
                      (point.dynamic_shared && point.dynamic_if_read_short
                           ? ", unless the read replaces it"
                           : "") +
                      "\n";
            for (const ValueReport& value : point.values) result += value_line(value);
            for (const CheaperPlace& place : point.cheaper)
                result += "    moving the point above line " + std::to_string(place.line) +
                          " saves " + std::to_string(place.saves) + " B for each thread\n";
        }
    }
    return result.empty() ? file + ": no kernel has a point\n" : result;
}

static llvm::json::Object point_object(const PointReport& point) {
    llvm::json::Array values, cheaper;
    for (const ValueReport& value : point.values)
        values.push_back(llvm::json::Object{{"name", value.name},
                                            {"bytes", static_cast<int64_t>(value.size)},
                                            {"each", value.where},
                                            {"if_read_short", value.if_read_short},
                                            {"reason", value.why}});
    for (const CheaperPlace& place : point.cheaper)
        cheaper.push_back(llvm::json::Object{{"above_line", static_cast<int64_t>(place.line)},
                                             {"saves_bytes", static_cast<int64_t>(place.saves)}});
    return llvm::json::Object{{"number", static_cast<int64_t>(point.number)},
                              {"line", static_cast<int64_t>(point.line)},
                              {"call", point.call},
                              {"thread_bytes", static_cast<int64_t>(point.thread_bytes)},
                              {"block_bytes", static_cast<int64_t>(point.block_bytes)},
                              {"shared_bytes", static_cast<int64_t>(point.shared_bytes)},
                              {"dynamic_shared", point.dynamic_shared},
                              {"values", std::move(values)},
                              {"cheaper", std::move(cheaper)}};
}

std::string report_json(const std::string& file, const std::vector<KernelReport>& kernels) {
    llvm::json::Array list;
    for (const KernelReport& kernel : kernels) {
        llvm::json::Array points, instances;
        for (const PointReport& point : kernel.points) points.push_back(point_object(point));
        for (const std::string& instance : kernel.instances) instances.push_back(instance);
        list.push_back(
            llvm::json::Object{{"name", kernel.name},
                               {"line", static_cast<int64_t>(kernel.line)},
                               {"instances", std::move(instances)},
                               {"thread_bytes", static_cast<int64_t>(kernel.thread_words * 4)},
                               {"block_bytes", static_cast<int64_t>(kernel.block_words * 4)},
                               {"shared_bytes", static_cast<int64_t>(kernel.shared_size)},
                               {"parameter_bytes", static_cast<int64_t>(kernel.parameter_bytes)},
                               {"one_run", kernel.one_run},
                               {"points", std::move(points)}});
    }
    std::string text;
    llvm::raw_string_ostream out(text);
    out << llvm::formatv("{0:2}", llvm::json::Value(llvm::json::Object{
                                      {"path", file}, {"kernels", std::move(list)}}));
    return out.str() + "\n";
}

}  // namespace penstock::compiler
