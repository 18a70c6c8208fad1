// An open file as Python holds it: how it was opened, and opened again where that is needed.
#pragma once

#include <nanobind/nanobind.h>

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "future.h"
#include "penstock/file.h"

namespace penstock::python {

// What penstock.open takes beside the file and the mode.
struct OpenArguments {
    nanobind::object device;  // str; None: host memory, and CUDA devices when buffers are theirs
    std::string cache;
    nanobind::object route, strict;  // None: what PENSTOCK_ROUTE and PENSTOCK_STRICT say
    nanobind::object threads;
    std::string storage;
    double throttle_latency_us, throttle_bandwidth_mbs;
};

// Words of the Python interface. Throw ValueError; `what` is named there.
CachePolicy cache_policy_of(const std::string& word);
const char* word(CachePolicy policy);
std::optional<Route> route_of(const std::string& word, const char* what);

// Wants the interpreter held; it is let go while files are opened.
class PythonFile {
public:
    // `file` is a path, a descriptor, or has fileno(). Throws ValueError, TypeError,
    // penstock.Error.
    PythonFile(nanobind::object file, const std::string& mode, const OpenArguments& arguments);
    // What the parent of a fork opened is not destroyed in the child.
    ~PythonFile();
    PythonFile(const PythonFile&) = delete;
    PythonFile& operator=(const PythonFile&) = delete;

    // For memory of CUDA device `cuda`, or Target::kHost, Target::kSomeCuda. Opens the file again
    // for a device that is new to it, and after a fork. Throws penstock.Error.
    File file_for(int cuda);
    // Throws penstock.Error, EFAULT, where `data` is said to lie in memory of that device and the
    // driver knows nothing there: its owner gave it back, and the host would take it for its own.
    void require_memory(int cuda, const void* data);
    // Throws penstock.ModeError where the mode forbids that.
    void require(Use use) const;
    // Appends of all Files of this object run in the order of their calls. Those of one File do by
    // themselves; before one of another File, await_appends() waits for the last.
    void await_appends(Use use, int cuda);
    void follow_appends(Use use, int cuda, const Future& future);
    void close();
    [[nodiscard]] const std::string& mode() const { return mode_; }
    [[nodiscard]] bool appends() const { return mode_[0] == 'a'; }
    [[nodiscard]] bool closed() const { return closed_; }
    [[nodiscard]] const std::shared_ptr<const Source>& source() const { return source_; }
    [[nodiscard]] const FileOptions& options() const { return options_; }
    [[nodiscard]] std::string device_name() const { return device_name_; }

private:
    File open_for(const std::string& device);
    [[nodiscard]] int own_cuda() const;  // the number of the device it was opened with, or -1
    void take_name(nanobind::object file);

    std::shared_ptr<const Source> source_;
    std::string path_;     // absolute
    int descriptor_ = -1;  // a copy of the one that was given: path_ leads through it
    std::string mode_;     // r, w, a or x, and perhaps +
    std::string device_name_;
    FileOptions options_;
    std::optional<std::pair<dev_t, ino_t>> identity_;
    unsigned process_;
    bool closed_ = false;
    std::optional<Future> last_append_;  // of the File in files_ for last_append_cuda_
    int last_append_cuda_ = Target::kHost;
    std::map<int, File> files_;  // by CUDA device; kHost: as it was opened
};

}  // namespace penstock::python
