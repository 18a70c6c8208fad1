// Finds functions of the libraries that are loaded after this one, as dlsym(RTLD_NEXT) finds them.
//
// dlsym allocates the text of an error for each name that it does not find, and takes the loader's
// lock. A wrapper may be called by an allocator that is just initializing itself, or that holds its
// own lock. So the loader's list of libraries is read here, and their symbol tables are searched.
// Nothing here allocates, takes a lock, or calls another library but for a symbol's own resolver.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace penstock::preload {

// The hash of a name in the tables of DT_GNU_HASH.
constexpr uint32_t gnu_hash(const char* name) {
    uint32_t hash = 5381;
    for (; *name != '\0'; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
    return hash;
}

// A function that is looked for.
struct Wanted {
    const char* name;
    uint32_t hash;  // gnu_hash(name)
    void* target;   // of the pointer to the function, which stays as it is if there is none
};

// Sets the targets of the functions that are found, each in the first library that has it. Targets
// that are not null are left alone.
//
// The list of the libraries with which the program starts never changes. Another thread may add to
// its end meanwhile.
void find_next(const Wanted* wanted, size_t count);

// Returns whether the program or one of its libraries has a function of that name.
bool is_defined(const char* name);

// Returns the path of this library, as the loader was given it; null: the loader's list lacks it.
const char* own_path();

}  // namespace penstock::preload
