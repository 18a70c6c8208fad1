#include "symbols.h"

#include <link.h>
#include <string.h>
#include <sys/auxv.h>

namespace penstock::preload {
namespace {

// Returns this library's entry in the loader's list; null: it has none.
const link_map* own_entry() {
    const link_map* library = _r_debug.r_map;
    while (library != nullptr && library->l_ld != _DYNAMIC) library = library->l_next;
    return library;
}

// The part of a library's dynamic section that names its symbols.
class Symbols {
public:
    explicit Symbols(const link_map& library) : base_(library.l_addr) {
        for (const ElfW(Dyn)* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) {
            if (entry->d_tag == DT_SYMTAB) table_ = at<ElfW(Sym)>(*entry);
            if (entry->d_tag == DT_STRTAB) names_ = at<char>(*entry);
            if (entry->d_tag == DT_VERSYM) versions_ = at<ElfW(Half)>(*entry);
            if (entry->d_tag == DT_GNU_HASH) gnu_ = at<uint32_t>(*entry);
            if (entry->d_tag == DT_HASH) old_ = at<uint32_t>(*entry);
        }
    }

    // Returns the address of a function; null: this library does not have it.
    void* find(const Wanted& wanted) const {
        if (table_ == nullptr || names_ == nullptr) return nullptr;
        const ElfW(Sym)* symbol = nullptr;
        if (gnu_ != nullptr) {
            symbol = find_by_gnu_hash(wanted);
        } else if (old_ != nullptr) {
            symbol = find_by_hash(wanted);
        }
        if (symbol == nullptr) return nullptr;
        const uintptr_t address = base_ + symbol->st_value;
        if (ELF64_ST_TYPE(symbol->st_info) != STT_GNU_IFUNC)
            return reinterpret_cast<void*>(address);
        // Its value is a function that chooses one for this processor.
        return reinterpret_cast<void* (*)(uint64_t)>(address)(getauxval(AT_HWCAP));
    }

private:
    // The loader has turned most of these into addresses already.
    template <class Type>
    const Type* at(const ElfW(Dyn) & entry) const {
        const uintptr_t value = entry.d_un.d_ptr;
        return reinterpret_cast<const Type*>(value < base_ ? base_ + value : value);
    }

    const ElfW(Sym) * find_by_gnu_hash(const Wanted& wanted) const {
        constexpr uint32_t kWordBits = 8 * sizeof(ElfW(Addr));
        const uint32_t bucket_count = gnu_[0], first = gnu_[1], word_count = gnu_[2];
        const auto* words = reinterpret_cast<const ElfW(Addr)*>(gnu_ + 4);
        const auto* buckets = reinterpret_cast<const uint32_t*>(words + word_count);
        const uint32_t* chains = buckets + bucket_count;
        const uint32_t hash = wanted.hash;
        const ElfW(Addr) word = words[hash / kWordBits % word_count];
        if ((word >> hash % kWordBits & word >> (hash >> gnu_[3]) % kWordBits & 1) == 0)
            return nullptr;
        uint32_t index = buckets[hash % bucket_count];
        if (index < first) return nullptr;
        for (;; ++index) {
            const uint32_t found = chains[index - first];
            if ((found | 1) == (hash | 1) && is(index, wanted.name)) return table_ + index;
            if ((found & 1) != 0) return nullptr;  // the chain's last
        }
    }

    // Searches the older kind of table, which some linkers still make alone.
    const ElfW(Sym) * find_by_hash(const Wanted& wanted) const {
        uint32_t hash = 0;
        for (const char* at = wanted.name; *at != '\0'; ++at) {
            hash = (hash << 4) + static_cast<unsigned char>(*at);
            hash = (hash ^ (hash >> 24 & 0xf0)) & 0x0fffffff;
        }
        const uint32_t bucket_count = old_[0];
        const uint32_t* chains = old_ + 2 + bucket_count;
        for (uint32_t index = old_[2 + hash % bucket_count]; index != 0; index = chains[index])
            if (is(index, wanted.name)) return table_ + index;
        return nullptr;
    }

    // Returns whether dlsym() would take a symbol for `name`.
    bool is(uint32_t index, const char* name) const {
        constexpr ElfW(Half) kHidden = 0x8000;  // not the default version
        const ElfW(Sym)& symbol = table_[index];
        const int type = ELF64_ST_TYPE(symbol.st_info), binding = ELF64_ST_BIND(symbol.st_info);
        const int visibility = ELF64_ST_VISIBILITY(symbol.st_other);
        return symbol.st_shndx != SHN_UNDEF && symbol.st_value != 0 &&
               (type == STT_NOTYPE || type == STT_FUNC || type == STT_GNU_IFUNC) &&
               binding != STB_LOCAL && visibility != STV_HIDDEN && visibility != STV_INTERNAL &&
               (versions_ == nullptr || (versions_[index] & kHidden) == 0) &&
               strcmp(names_ + symbol.st_name, name) == 0;
    }

    uintptr_t base_;
    const ElfW(Sym) * table_ = nullptr;
    const char* names_ = nullptr;
    const ElfW(Half) * versions_ = nullptr;
    const uint32_t *gnu_ = nullptr, *old_ = nullptr;
};

}  // namespace

void find_next(const Wanted* wanted, size_t count) {
    const link_map* library = own_entry();
    if (library == nullptr) return;
    while ((library = library->l_next) != nullptr) {
        const Symbols symbols(*library);
        for (size_t i = 0; i < count; ++i) {
            auto* target = static_cast<void**>(wanted[i].target);
            if (__atomic_load_n(target, __ATOMIC_RELAXED) != nullptr) continue;
            if (void* found = symbols.find(wanted[i]); found != nullptr)
                __atomic_store_n(target, found, __ATOMIC_RELAXED);
        }
    }
}

bool is_defined(const char* name) {
    const Wanted wanted{name, gnu_hash(name), nullptr};
    for (const link_map* library = _r_debug.r_map; library != nullptr; library = library->l_next)
        if (Symbols(*library).find(wanted) != nullptr) return true;
    return false;
}

const char* own_path() {
    const link_map* library = own_entry();
    return library == nullptr ? nullptr : library->l_name;
}

}  // namespace penstock::preload
