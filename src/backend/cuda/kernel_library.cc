#include "backend/cuda/kernel_library.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace penstock::backend::cuda {
namespace {

bool is_folder(const std::string& path) {
    struct stat found {};
    return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

// Returns the folder of the program or shared library that holds `address`, without a slash at its
// end. Returns an empty string if it is not known.
std::string folder_of_module(const void* address) {
    Dl_info info{};
    link_map* map = nullptr;
    if (dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return {};
    // The program itself has no name here. Its argv[0] may be relative to a folder that it has left
    // since.
    const char* name = map == nullptr || *map->l_name == '\0' ? "/proc/self/exe" : map->l_name;
    char resolved[PATH_MAX];
    if (realpath(name, resolved) == nullptr) return {};
    std::string path = resolved;
    return path.substr(0, path.rfind('/'));
}

// Returns the files to try, in order.
std::vector<std::string> candidates(const KernelEntry& entry, const std::string& file) {
    std::vector<std::string> paths;
    if (const char* list = std::getenv("PENSTOCK_CUDA_KERNELS"); list != nullptr) {
        std::string rest = list;
        while (!rest.empty()) {
            const size_t colon = rest.find(':');
            const std::string part = rest.substr(0, colon);
            rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
            if (part.empty()) continue;
            if (is_folder(part)) {
                paths.push_back(std::string(part).append("/").append(file));
            } else if (part.substr(part.rfind('/') + 1) == file) {
                paths.push_back(part);
            }
        }
    }
    // Uses the address of the entry and not of the function: another module's copy of the same
    // function may have won the symbol.
    if (const std::string folder = folder_of_module(&entry); !folder.empty()) {
        paths.push_back(folder + "/" + file);
        paths.push_back(folder + "/../lib/" + file);
    }
    return paths;
}

Result<const CudaLibrary*> open_file(const std::string& path, std::string* detail) {
    // Lazily, because host functions that the .cu files name beside their kernels may be
    // unresolved.
    void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* reason = dlerror();
        *detail = path + " cannot be opened: " + (reason == nullptr ? "unknown reason" : reason);
        return Status(ENOEXEC, "dlopen", "the library of CUDA kernels cannot be opened");
    }
    auto door = reinterpret_cast<const CudaLibrary* (*)()>(dlsym(handle, "penstock_cuda_library"));
    if (door == nullptr || door()->version != kCudaLibraryVersion) {
        *detail = path + " was built for another version of penstock: build it again";
        return Status(ENOEXEC, "dlsym", "the library of CUDA kernels is of another version");
    }
    return door();
}

}  // namespace

std::string target_of(const char* key) {
    const char* slash = std::strchr(key, '/');
    return slash == nullptr ? std::string(key) : std::string(key, slash);
}

Result<const CudaLibrary*> open_kernel_library(const KernelEntry& entry, std::string* detail) {
    const std::string file = "lib" + target_of(entry.key) + "_cuda.so";
    const std::vector<std::string> paths = candidates(entry, file);
    for (const std::string& path : paths) {
        if (access(path.c_str(), F_OK) == 0) return open_file(path, detail);
    }
    *detail = file + " was not found; looked for";
    for (const std::string& path : paths) *detail += " " + path;
    *detail += "; penstock_add_kernels builds it where there is an nvcc";
    return Status(ENOENT, "open_cuda", "the kernels of this program were not compiled for CUDA");
}

const void* find_stub(const CudaLibrary& library, const char* key) {
    for (const CudaStub* stub = library.first; stub != nullptr; stub = stub->next) {
        if (std::strcmp(stub->key, key) == 0) return stub->stub;
    }
    return nullptr;
}

}  // namespace penstock::backend::cuda
