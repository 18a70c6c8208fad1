#include "environment.h"

#include <string.h>
#include <sys/mman.h>

#include "next.h"
#include "symbols.h"

extern char** environ;

namespace penstock::preload {
namespace {

constexpr char kPreload[] = "LD_PRELOAD=";
constexpr size_t kPreloadSize = sizeof kPreload - 1;
constexpr char kPrefix[] = "PENSTOCK_";
constexpr size_t kPrefixSize = sizeof kPrefix - 1;
constexpr size_t kSettingsMax = 32;

char* settings[kSettingsMax];  // PENSTOCK_...=...
size_t setting_count;
char library[4096];  // this library's path
size_t library_size;

bool is_preload(const char* line) { return strncmp(line, kPreload, kPreloadSize) == 0; }

bool is_setting(const char* line) { return strncmp(line, kPrefix, kPrefixSize) == 0; }

// Returns whether two lines set the same variable.
bool same_name(const char* a, const char* b) {
    const size_t size = strcspn(a, "=");
    return strncmp(a, b, size) == 0 && b[size] == '=';
}

bool has(char* const* environment, const char* setting) {
    for (; *environment != nullptr; ++environment) {
        if (same_name(setting, *environment)) return true;
    }
    return false;
}

}  // namespace

const char* setting(const char* name) {
    const size_t size = strlen(name);
    for (char** line = environ; line != nullptr && *line != nullptr; ++line)
        if (strncmp(*line, name, size) == 0 && (*line)[size] == '=') return *line + size + 1;
    return nullptr;
}

void keep_settings() {
    const char* path = own_path();
    if (path == nullptr) return;
    library_size = strlen(path);
    if (library_size >= sizeof library) library_size = 0;
    memcpy(library, path, library_size);
    size_t size = 0;
    for (char** line = environ; line != nullptr && *line != nullptr; ++line)
        if (is_setting(*line)) size += strlen(*line) + 1;
    if (size == 0) return;
    // Copies: the program may change its environment.
    void* memory = kernel::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                -1, 0);
    if (memory == MAP_FAILED) return;
    char* end = static_cast<char*>(memory);
    for (char** line = environ; *line != nullptr && setting_count < kSettingsMax; ++line) {
        if (!is_setting(*line)) continue;
        settings[setting_count++] = end;
        end = stpcpy(end, *line) + 1;
    }
}

Room room_for(char* const* environment) {
    Room room{setting_count + 2, kPreloadSize + library_size + 2};
    for (; environment != nullptr && *environment != nullptr; ++environment) {
        ++room.pointers;
        if (is_preload(*environment)) room.bytes += strlen(*environment);
    }
    return room;
}

char* const* completed(char* const* environment, char** pointers, char* text) {
    static char* const kEmpty[] = {nullptr};
    if (library_size == 0) return environment;
    if (environment == nullptr) environment = kEmpty;  // so does the kernel
    size_t count = 0;
    bool loaded = false;
    for (char* const* line = environment; *line != nullptr; ++line) {
        pointers[count++] = *line;
        if (!is_preload(*line) || loaded) continue;
        loaded = true;
        if (strstr(*line, library) != nullptr) continue;
        // This library goes first, as it does where it is loaded by `penstock run`.
        char* end = static_cast<char*>(mempcpy(text, kPreload, kPreloadSize));
        end = static_cast<char*>(mempcpy(end, library, library_size));
        if ((*line)[kPreloadSize] != '\0') *end++ = ':';
        strcpy(end, *line + kPreloadSize);
        pointers[count - 1] = text;
    }
    if (!loaded) {
        char* end = static_cast<char*>(mempcpy(text, kPreload, kPreloadSize));
        *static_cast<char*>(mempcpy(end, library, library_size)) = '\0';
        pointers[count++] = text;
    }
    for (size_t i = 0; i < setting_count; ++i) {
        if (!has(environment, settings[i])) pointers[count++] = settings[i];
    }
    pointers[count] = nullptr;
    return pointers;
}

}  // namespace penstock::preload
