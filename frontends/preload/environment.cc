#include "environment.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

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

void keep_settings() {
    Dl_info self;
    if (dladdr(reinterpret_cast<void*>(&keep_settings), &self) == 0) return;
    // dli_fname is the path that the loader was given.
    library_size = strlen(self.dli_fname);
    if (library_size >= sizeof library) library_size = 0;
    memcpy(library, self.dli_fname, library_size);
    for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
        if (strncmp(*line, kPrefix, kPrefixSize) != 0 || setting_count == kSettingsMax) continue;
        settings[setting_count++] = strdup(*line);  // the program may change its environment
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
