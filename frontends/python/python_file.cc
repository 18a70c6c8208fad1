// Opening files for Python.
#include "python_file.h"

#include <nanobind/stl/string.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "core.h"
#include "observer.h"

namespace penstock::python {
namespace {

namespace nb = nanobind;

constexpr unsigned kThreadsMax = 64;  // the engine's limit; it would say EINVAL

constexpr std::pair<const char*, CachePolicy> kCachePolicies[] = {{"auto", CachePolicy::kAuto},
                                                                  {"keep", CachePolicy::kKeep},
                                                                  {"drop", CachePolicy::kDrop},
                                                                  {"bypass", CachePolicy::kBypass}};

template <class Value, size_t N>
Value word_of(const std::string& word, const char* what,
              const std::pair<const char*, Value> (&words)[N]) {
    std::string allowed;
    for (const auto& [name, value] : words) {
        if (word == name) return value;
        allowed += (allowed.empty() ? "" : ", ") + std::string(name);
    }
    throw nb::value_error(
        (std::string(what) + ": '" + word + "' is not one of " + allowed).c_str());
}

StorageKind storage_kind(const std::string& word) {
    return word_of<StorageKind>(word, "storage",
                                {{"auto", StorageKind::kAuto},
                                 {"posix", StorageKind::kPosix},
                                 {"uring", StorageKind::kUring}});
}

FileOptions options_of(const OpenArguments& arguments) {
    FileOptions options;
    options.reading.cache = cache_policy_of(arguments.cache);
    // Arguments go before the environment, `auto` and False among them.
    options.route_of_environment = arguments.route.is_none();
    if (!arguments.route.is_none())
        options.reading.route = route_of(argument<std::string>(arguments.route, "route", "a str"),
                                         "route");
    options.strict_of_environment = arguments.strict.is_none();
    options.reading.strict = !arguments.strict.is_none() &&
                             argument<bool>(arguments.strict, "strict", "a bool");
    options.writing = options.reading;
    options.storage = storage_kind(arguments.storage);
    for (const double figure : {arguments.throttle_latency_us, arguments.throttle_bandwidth_mbs}) {
        if (!(figure >= 0 && std::isfinite(figure)))
            throw nb::value_error("a throttle is a number from 0 up");
    }
    options.study.throttle_latency_us = arguments.throttle_latency_us;
    options.study.throttle_bandwidth_mbs = arguments.throttle_bandwidth_mbs;
    if (!arguments.threads.is_none()) {
        const auto threads = argument<int64_t>(arguments.threads, "threads", "an int");
        if (threads < 1 || threads > kThreadsMax)
            throw nb::value_error(("threads is 1 to " + std::to_string(kThreadsMax)).c_str());
        options.threads = static_cast<unsigned>(threads);
    }
    return options;
}

// As Python's own open, in whatever order; 'b' says nothing here.
int open_flags_of(const std::string& mode, std::string* shown) {
    const auto count = [&mode](char one) { return std::ranges::count(mode, one); };
    const bool plus = count('+') == 1;
    const size_t known = static_cast<size_t>(count('+') + count('b'));
    std::string first;
    for (const char one : mode)
        if (one != '+' && one != 'b') first += one;
    const int access = plus ? O_RDWR : first == "r" ? O_RDONLY : O_WRONLY;
    *shown = first + (plus ? "+" : "");
    if (count('+') <= 1 && count('b') <= 1 && first.size() == 1 && known + 1 == mode.size()) {
        if (first == "r") return access;
        if (first == "a") return access | O_CREAT | O_APPEND;
        if (first == "w") return access | O_CREAT | O_TRUNC;
        if (first == "x") return access | O_CREAT | O_EXCL;
    }
    throw nb::value_error(("mode '" + mode + "' is none of r, w, a, x, with + or without").c_str());
}

// Fixes what the environment decides, also for opens of the same file on other devices. A hook of
// Python explains reads and writes instead of the library, because it knows the names that open()
// was given.
void complete_options(FileOptions* options) {
    static bool explaining = false;
    if (Status status = fill_from_environment(options); !status.ok())
        raise_error(status, nb::none());
    if (options->explain.value_or(false) && !explaining) {
        nb::module_::import_("penstock.tracing").attr("explain")();
        explaining = true;
    }
    options->explain = false;
}

}  // namespace

CachePolicy cache_policy_of(const std::string& word) {
    return word_of(word, "cache", kCachePolicies);
}

const char* word(CachePolicy policy) {
    for (const auto& [name, value] : kCachePolicies)
        if (value == policy) return name;
    return "";
}

std::optional<Route> route_of(const std::string& word, const char* what) {
    return word_of<std::optional<Route>>(word, what,
                                         {{"auto", std::nullopt},
                                          {"cached", Route::kCached},
                                          {"direct", Route::kDirect},
                                          {"peer", Route::kPeer}});
}

PythonFile::PythonFile(nb::object file, const std::string& mode, const OpenArguments& arguments)
    : options_(options_of(arguments)), process_(process_number()) {
    options_.open_flags = open_flags_of(mode, &mode_);
    refuse_at_exit();
    complete_options(&options_);
    if (!arguments.device.is_none()) {
        device_name_ = argument<std::string>(arguments.device, "device", "a str");
        if (device_name_.empty()) device_name_ = "auto";
    }
    take_name(std::move(file));
    files_[Target::kHost] = open_for(device_name_);
    options_.open_flags &= O_ACCMODE | O_APPEND;  // it is there, and is not cut again
}

void PythonFile::require(Use use) const {
    const int access = options_.open_flags & O_ACCMODE;
    if (closed_ || access == O_RDWR || access == (use == Use::kRead ? O_RDONLY : O_WRONLY)) return;
    const nb::object error = nb::module_::import_("penstock.errors")
                                 .attr("mode_error")(mode_, source_->name);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

// Sets source_ and path_. A descriptor is kept as a copy, so that its file can be opened again.
void PythonFile::take_name(nb::object file) {
    int descriptor = -1;
    bool has_descriptor = true;
    if (PyLong_Check(file.ptr())) {
        descriptor = nb::cast<int>(file);
    } else if (nb::hasattr(file, "fileno") && !nb::hasattr(file, "__fspath__")) {
        descriptor = nb::cast<int>(file.attr("fileno")());
        if (nb::hasattr(file, "name")) file = file.attr("name");
    } else {
        has_descriptor = false;
    }
    if (!has_descriptor) {
        const nb::object path = nb::steal(PyOS_FSPath(file.ptr()));
        if (!path.is_valid()) throw nb::python_error();
        source_ = std::make_shared<const Source>(Source{path});
        PyObject* encoded = nullptr;
        if (PyUnicode_FSConverter(path.ptr(), static_cast<void*>(&encoded)) == 0)
            throw nb::python_error();
        const auto bytes = nb::steal<nb::bytes>(encoded);
        const std::string name(bytes.c_str(), bytes.size());
        if (name.empty()) raise_error(Status(ENOENT, "open", ""), file);
        std::error_code code;  // of a working directory that is gone
        path_ = std::filesystem::absolute(name, code).string();
        if (code) raise_error(Status(code.value(), "open", ""), file);
        return;
    }
    source_ = std::make_shared<const Source>(Source{file});
    descriptor_ = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (descriptor_ < 0) raise_error(Status(errno, "fcntl", ""), file);
    path_ = "/proc/self/fd/" + std::to_string(descriptor_);
}

PythonFile::~PythonFile() {
    close();
    if (process_ != process_number()) new std::map<int, File>(std::move(files_));
}

File PythonFile::open_for(const std::string& device) {
    const Device on = device.empty() ? Device() : open_device(device);
    struct stat now {};
    Result<File> opened = [&] {
        const Unlocked others;
        Result<File> file = File::open(path_, on, options_);
        if (file.ok() && ::stat(path_.c_str(), &now) != 0)
            return Result<File>(Status(errno, "stat", ""));
        return file;
    }();
    if (!opened.ok()) raise_error(opened.status(), source_->name);
    const std::pair identity(now.st_dev, now.st_ino);
    if (identity_.value_or(identity) != identity)
        raise_error(Status(ESTALE, "open", "another file has this name now"), source_->name);
    identity_ = identity;
    return opened.value();
}

File PythonFile::file_for(int cuda) {
    if (closed_) raise_error(Status(EBADF, "read", "the file is closed"), source_->name);
    if (process_ != process_number()) {
        new std::map<int, File>(std::move(files_));  // the parent's: not destroyed here
        files_.clear();
        process_ = process_number();
    }
    auto host = files_.find(Target::kHost);
    if (host == files_.end()) host = files_.emplace(Target::kHost, open_for(device_name_)).first;
    if (cuda == Target::kHost) return host->second;
    const int own = own_cuda();
    if (cuda == Target::kSomeCuda) cuda = std::max(own, 0);
    if (cuda == own) return host->second;
    auto found = files_.find(cuda);
    if (found == files_.end())
        found = files_.emplace(cuda, open_for("cuda:" + std::to_string(cuda))).first;
    return found->second;
}

int PythonFile::own_cuda() const {
    return device_name_.empty() ? -1 : cuda_index(open_device(device_name_));
}

void PythonFile::require_memory(int cuda, const void* data) {
    if (cuda == Target::kHost) return;
    const int own = own_cuda();
    if (cuda == Target::kSomeCuda) cuda = std::max(own, 0);
    const Device& device = open_device(cuda == own ? device_name_ : "cuda:" + std::to_string(cuda));
    if (!device.knows(data))
        raise_error(Status(EFAULT, "buffer", "no CUDA memory is there: was it freed?"),
                    source_->name);
}

void PythonFile::await_appends(Use use, int cuda) {
    if (use != Use::kWrite || !last_append_.has_value() || last_append_cuda_ == cuda) return;
    const Future last = *std::exchange(last_append_, std::nullopt);
    const Unlocked others;
    (void)last.wait();
}

void PythonFile::follow_appends(Use use, int cuda, const Future& future) {
    if (use != Use::kWrite || !appends()) return;
    last_append_ = future;
    last_append_cuda_ = cuda;
}

void PythonFile::close() {
    closed_ = true;
    last_append_.reset();
    if (process_ == process_number()) {
        std::map<int, File> gone = std::exchange(files_, {});
        const Unlocked others;  // the last file of an engine waits for its threads
        gone.clear();
    }
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

}  // namespace penstock::python
